/* Takes Curator's InterProcessMutex again and again: Contender HOSTS PATH ROUNDS DIRECTORY. Fails if somebody else is
 * inside: see contender.py. */
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class Contender {
    public static void main(String[] args) throws Exception {
        Path inside = Path.of(args[3]);
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 10000,
                                                                         new ExponentialBackoffRetry(100, 5))) {
            client.start();
            client.blockUntilConnected();
            System.out.println("ready");
            System.in.read();
            InterProcessMutex mutex = new InterProcessMutex(client, args[1]);
            for (int i = 0; i < Integer.parseInt(args[2]); i++) {
                mutex.acquire();
                try {
                    Files.createDirectory(inside);
                    Files.delete(inside);
                } finally {
                    mutex.release();
                }
            }
        }
    }
}
