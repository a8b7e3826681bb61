import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.Trigger;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Structured streaming in local mode: one topic in, another out, and batches of both. */
public final class SparkProgram {
    static final String BOOTSTRAP = System.getenv("COMPAT_BOOTSTRAP");
    static final String NAME = System.getenv("COMPAT_NAME");
    static final String OUT = NAME + "-out";
    static final int RECORDS = 5000;

    public static void main(String[] args) throws Exception {
        SparkSession spark = SparkSession.builder().master("local[2]").appName(NAME).config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "4").config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
            .config("spark.local.dir", args[1]).config("spark.sql.warehouse.dir", args[1]).getOrCreate();
        switch (args[0]) {
            case "batch" -> batch(spark);
            case "streaming" -> streaming(spark, Path.of(args[1], "checkpoint"));
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    static void check(boolean ok, String what) {
        if (!ok) {
            throw new AssertionError(what);
        }
    }

    private static void write(SparkSession spark, String topic, int from, int to) {
        List<Row> rows = new ArrayList<>();
        for (int i = from; i < to; i++) {
            rows.add(RowFactory.create("k" + i, "v" + i));
        }
        StructType schema = new StructType().add("key", DataTypes.StringType).add("value", DataTypes.StringType);
        spark.createDataFrame(rows, schema).write().format("kafka").options(Map.of("kafka.bootstrap.servers", BOOTSTRAP, "topic", topic)).save();
    }

    private static Dataset<Row> read(SparkSession spark, String topic, Map<String, String> more) {
        return spark.read().format("kafka").options(Map.of("kafka.bootstrap.servers", BOOTSTRAP, "subscribe", topic)).options(more).load()
            .select(functions.col("key").cast("string"), functions.col("value").cast("string"), functions.col("partition"), functions.col("offset"),
                functions.col("timestamp"));
    }

    private static void same(Dataset<Row> got, int from, int to, String prefix) {
        Set<String> have = new HashSet<>();
        List<Row> rows = got.collectAsList();
        rows.forEach(r -> have.add(r.getString(0) + "=" + r.getString(1)));
        check(rows.size() == to - from && have.size() == to - from, rows.size() + " rows, " + have.size() + " different ones, want " + (to - from));
        for (int i = from; i < to; i++) {
            check(have.contains("k" + i + "=" + prefix + i), "no row of " + i);
        }
    }

    /** Written and read as data frames: whole, and from a time on. */
    private static void batch(SparkSession spark) throws Exception {
        write(spark, NAME, 0, RECORDS);
        Thread.sleep(20);
        long between = System.currentTimeMillis();
        Thread.sleep(20);
        write(spark, NAME, RECORDS, RECORDS + 500);
        same(read(spark, NAME, Map.of()), 0, RECORDS + 500, "v");
        same(read(spark, NAME, Map.of("startingTimestamp", Long.toString(between), "startingOffsetsByTimestampStrategy", "latest")), RECORDS, RECORDS + 500, "v");
    }

    /** A query that runs to the end of the topic, stops, and goes on from its checkpoint when there is more. */
    private static void streaming(SparkSession spark, Path checkpoint) throws Exception {
        write(spark, NAME, 0, RECORDS);
        advance(spark, checkpoint);
        same(read(spark, OUT, Map.of()), 0, RECORDS, "seen v");
        write(spark, NAME, RECORDS, RECORDS + 1000);
        advance(spark, checkpoint);
        same(read(spark, OUT, Map.of()), 0, RECORDS + 1000, "seen v");
    }

    private static void advance(SparkSession spark, Path checkpoint) throws Exception {
        var in = spark.readStream().format("kafka").options(Map.of("kafka.bootstrap.servers", BOOTSTRAP, "subscribe", NAME,
            "startingOffsets", "earliest", "maxOffsetsPerTrigger", "2000", "minPartitions", "4")).load();
        var query = in.selectExpr("key", "concat('seen ', cast(value as string)) as value").writeStream().format("kafka")
            .options(Map.of("kafka.bootstrap.servers", BOOTSTRAP, "topic", OUT, "checkpointLocation", checkpoint.toString()))
            .trigger(Trigger.AvailableNow()).start();
        check(query.awaitTermination(90_000), "the query did not end");
        check(query.exception().isEmpty(), "the query failed: " + query.exception());
    }
}
