package penstock;

import java.util.Collections;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.spark.api.python.Py4JServer;

/** Starts Penstock beside a driver, whatever its job is written in: spark.plugins=penstock.AttachPlugin.
    It is compiled by the Janino that every Spark has, against that Spark: no lambdas, no generics. */
public class AttachPlugin implements SparkPlugin {
  public DriverPlugin driverPlugin() { return new Beside(); }
  public ExecutorPlugin executorPlugin() { return null; }

  public static class Beside implements DriverPlugin {
    private Process process;
    private Py4JServer server;

    public Map init(SparkContext context, PluginContext plugin) {
      try {
        SparkConf conf = context.conf();
        server = new Py4JServer(conf);
        server.start();
        String python = conf.get("spark.penstock.python", "python3");
        ProcessBuilder builder = new ProcessBuilder(
            new String[] {python, "-m", "penstock.spark.session.beside"});
        builder.environment().put("PYSPARK_GATEWAY_PORT", String.valueOf(server.getListeningPort()));
        builder.environment().put("PYSPARK_GATEWAY_SECRET", server.secret());
        builder.redirectOutput(ProcessBuilder.Redirect.INHERIT);
        builder.redirectError(ProcessBuilder.Redirect.INHERIT);
        process = builder.start();
      } catch (Throwable error) {
        System.err.println("penstock: could not attach; the job goes on without: " + error);
      }
      return Collections.EMPTY_MAP;
    }

    /** Its input ends, which tells it to go; it has two seconds to close its journal. */
    public void shutdown() {
      try {
        if (process != null) {
          process.getOutputStream().close();
          if (!process.waitFor(2L, TimeUnit.SECONDS)) { process.destroyForcibly(); }
        }
        if (server != null) { server.shutdown(); }
      } catch (Throwable error) {
        System.err.println("penstock: " + error);
      }
    }
  }
}
