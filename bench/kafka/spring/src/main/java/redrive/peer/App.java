package redrive.peer;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Profile;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.CommonErrorHandler;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.retrytopic.DltStrategy;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.stereotype.Component;
import org.springframework.util.backoff.ExponentialBackOff;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Spring Kafka in both of its ways; the profile chooses. Twelve listener threads, each calls the service and waits.
 *
 * <p>inplace: the thread that consumes waits and tries again (DefaultErrorHandler), then the dead-letter topic. topic: what failed
 * moves to a retry topic (RetryableTopic), whose listener waits; other messages of its key go past it.
 */
@SpringBootApplication
public class App {
    public static void main(String[] args) {
        SpringApplication.run(App.class, args);
    }

    @Bean
    Service service(@Value("${peer.url}") String url) {
        return new Service(url);
    }

    @Component
    @Profile("inplace")
    static class InPlace {
        private final Service service;

        InPlace(Service service) {
            this.service = service;
        }

        @KafkaListener(topics = "${peer.topic}", groupId = "${peer.group}", concurrency = "12")
        void on(ConsumerRecord<byte[], byte[]> record) {
            service.handle(record.value());
        }

        @Bean
        static CommonErrorHandler errors(KafkaTemplate<byte[], byte[]> template, @Value("${peer.attempts}") long attempts,
                @Value("${peer.delay}") long delay, @Value("${peer.multiplier}") double multiplier, @Value("${peer.cap}") long cap) {
            var letters = new DeadLetterPublishingRecoverer(template, (r, e) -> new TopicPartition(r.topic() + "-dlt", -1));
            if (multiplier <= 1) {
                return new DefaultErrorHandler(letters, new FixedBackOff(delay, attempts - 1));
            }
            var curve = new ExponentialBackOff(delay, multiplier);
            curve.setMaxInterval(cap);
            curve.setMaxAttempts(attempts - 1);
            return new DefaultErrorHandler(letters, curve);
        }
    }

    @Component
    @Profile("topic")
    static class Topics {
        private final Service service;

        Topics(Service service) {
            this.service = service;
        }

        @RetryableTopic(attempts = "${peer.attempts}", numPartitions = "12", replicationFactor = "1", concurrency = "12",
                backOff = @BackOff(delayString = "${peer.delay}", multiplierString = "${peer.multiplier}", maxDelayString = "${peer.cap}"),
                dltStrategy = DltStrategy.FAIL_ON_ERROR, autoStartDltHandler = "false")
        @KafkaListener(topics = "${peer.topic}", groupId = "${peer.group}", concurrency = "12")
        void on(ConsumerRecord<byte[], byte[]> record) {
            service.handle(record.value());
        }

        @Bean
        static TaskScheduler scheduler() {
            return new ThreadPoolTaskScheduler();
        }
    }
}
