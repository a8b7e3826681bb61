import java.io.InputStream;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** Lets Apache Kafka have tiered topics, of which nothing is ever uploaded. */
public class NoTier implements RemoteStorageManager {
    public Optional<RemoteLogSegmentMetadata.CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata m, LogSegmentData d) { return Optional.empty(); }
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata m, int from) throws RemoteResourceNotFoundException { throw new RemoteResourceNotFoundException(""); }
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata m, int from, int to) throws RemoteResourceNotFoundException { throw new RemoteResourceNotFoundException(""); }
    public InputStream fetchIndex(RemoteLogSegmentMetadata m, IndexType t) throws RemoteResourceNotFoundException { throw new RemoteResourceNotFoundException(""); }
    public void deleteLogSegmentData(RemoteLogSegmentMetadata m) { }
    public void configure(Map<String, ?> configs) { }
    public void close() { }
}
