package redrive.peer;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;

/** The business service: one blocking POST a message, connections kept. Anything but 200 is a failure. */
final class Service {
    static final class Failed extends RuntimeException {
        Failed(String why) {
            super(why);
        }
    }

    private final HttpClient client =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(5)).build();
    private final URI address;

    Service(String url) {
        address = URI.create(url);
    }

    void handle(byte[] body) {
        HttpRequest request = HttpRequest.newBuilder(address)
                .timeout(Duration.ofSeconds(30))
                .POST(HttpRequest.BodyPublishers.ofByteArray(body))
                .build();
        int status;
        try {
            status = client.send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
        } catch (IOException e) {
            throw new Failed(e.toString());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new Failed("interrupted");
        }
        if (status != 200) {
            throw new Failed("status " + status);
        }
    }
}
