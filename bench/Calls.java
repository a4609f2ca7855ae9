import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.yarn.client.api.YarnClient;
import org.apache.hadoop.yarn.conf.YarnConfiguration;

/** Measures calls per second of Hadoop's client, sequentially and from concurrent threads. */
class Calls {
    public static void main(String[] args) throws Exception {
        int calls = Integer.parseInt(args[0]);
        int threads = Integer.parseInt(args[1]);
        YarnClient client = YarnClient.createYarnClient();
        client.init(new YarnConfiguration());
        client.start();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        // The first round warms up the compiler.
        for (int round = 0; round < 2; round++) {
            double one = rate(client, pool, calls, 1);
            double many = rate(client, pool, calls, threads);
            if (round == 1) {
                System.out.println(one + " " + many);
            }
        }
        pool.shutdown();
        client.stop();
    }

    private static double rate(YarnClient client, ExecutorService pool, int calls, int threads) throws Exception {
        long start = System.nanoTime();
        List<Future<?>> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            all.add(pool.submit(() -> {
                for (int call = 0; call < calls / threads; call++) {
                    client.getYarnClusterMetrics();
                }
                return null;
            }));
        }
        for (Future<?> one : all) {
            one.get();
        }
        return (calls / threads * threads) / ((System.nanoTime() - start) / 1e9);
    }
}
