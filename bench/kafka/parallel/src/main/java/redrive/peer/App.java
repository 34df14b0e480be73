package redrive.peer;

import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import io.confluent.parallelconsumer.RecordContext;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * parallel-consumer with order by key and 64 calls at once. A message that failed waits in memory and its key with it; the rest goes
 * on. The library knows no dead letters: after the last attempt the function publishes the message itself. peer.attempts=0: no last.
 */
public final class App {
    private static final String BROKERS = System.getProperty("peer.brokers"), TOPIC = System.getProperty("peer.topic");
    private static final int ATTEMPTS = Integer.getInteger("peer.attempts");
    private static final Duration DELAY = Duration.ofMillis(Long.getLong("peer.delay"));

    private final Service service = new Service(System.getProperty("peer.url"));
    private final KafkaProducer<byte[], byte[]> letters = new KafkaProducer<>(
            Map.of("bootstrap.servers", BROKERS), new ByteArraySerializer(), new ByteArraySerializer());

    public static void main(String[] args) {
        new App().run();
    }

    private void run() {
        Map<String, Object> settings = Map.of("bootstrap.servers", BROKERS, "group.id", System.getProperty("peer.group"),
                "enable.auto.commit", "false", "auto.offset.reset", "earliest", "max.poll.interval.ms",
                System.getProperty("peer.maxpoll"), "session.timeout.ms", System.getProperty("peer.session"));
        var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var processor = ParallelStreamProcessor.createEosStreamProcessor(ParallelConsumerOptions.<byte[], byte[]>builder()
                .ordering(ParallelConsumerOptions.ProcessingOrder.KEY)
                .maxConcurrency(64)
                .consumer(consumer)
                .retryDelayProvider(record -> DELAY)
                .build());
        Runtime.getRuntime().addShutdownHook(new Thread(processor::closeDontDrainFirst));
        processor.subscribe(List.of(TOPIC));
        processor.poll(batch -> handle(batch.getSingleRecord()));
    }

    private void handle(RecordContext<byte[], byte[]> record) {
        try {
            service.handle(record.value());
        } catch (Service.Failed e) {
            if (ATTEMPTS == 0 || record.getNumberOfFailedAttempts() + 1 < ATTEMPTS) {
                throw e;
            }
            bury(record);
        }
    }

    private void bury(RecordContext<byte[], byte[]> record) {
        try {
            letters.send(new ProducerRecord<>(TOPIC + "-dlt", record.key(), record.value())).get();
        } catch (InterruptedException | ExecutionException e) {
            throw new IllegalStateException(e);
        }
    }
}
