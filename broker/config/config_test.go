package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// load writes file (unless it is empty) and loads it with what else is given.
func load(t *testing.T, file string, sets ...string) (*Config, []Warning, error) {
	t.Helper()
	opts := LoadOptions{Sets: sets}
	if file != "" {
		opts.File = filepath.Join(t.TempDir(), "server.properties")
		if err := os.WriteFile(opts.File, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(opts)
}

func mustLoad(t *testing.T, file string, sets ...string) *Config {
	t.Helper()
	c, _, err := load(t, file, sets...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNothingGivenIsACompleteNode(t *testing.T) {
	c, warnings, err := Load(LoadOptions{})
	if err != nil || len(warnings) != 0 {
		t.Fatal(warnings, err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(wd, "varve-data")
	for got, want := range map[string]string{
		c.LogDir():                        filepath.Join(data, "log"),
		c.MetaDir():                       filepath.Join(data, "meta"),
		c.CacheDir():                      filepath.Join(data, "cache"),
		c.TierURL():                       "dir://" + filepath.Join(data, "tier"),
		c.Listeners()[0].String():         "PLAINTEXT://127.0.0.1:9092",
		c.AdvertisedListeners()[0].Addr(): "127.0.0.1:9092",
		c.String("varve.http.listen"):     "127.0.0.1:9644",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if !c.Bool("varve.topic.remote.storage.enable") || c.NodeID() != 1 || len(c.ControllerListeners()) != 0 {
		t.Error("tiering, node id or controller listeners")
	}
	if c.Duration("log.retention.hours") != 168*time.Hour || c.Duration("remote.log.manager.task.interval.ms") != 30*time.Second {
		t.Error("durations")
	}
}

func TestPrecedence(t *testing.T) {
	file := "num.partitions=2\nlog.index.interval.bytes=100\nlog.roll.hours=5\n"
	path := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := Load(LoadOptions{
		File: path,
		Env:  []string{"VARVE_NUM_PARTITIONS=3", "VARVE_LOG_INDEX_INTERVAL_BYTES=200", "VARVE_TIER_CACHE_BYTES=7", "PATH=x", "VARVE_TOOLS_DIR=/x", "VARVE_TEST_X=1", "VARVE_PORT_9092_TCP=x", "VARVE_SERVICE_HOST=y"},
		Sets: []string{"num.partitions=4", "num.partitions=5"},
		Data: "/data",
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Int("num.partitions") != 5 || c.Int("log.index.interval.bytes") != 200 || c.Int("log.roll.hours") != 5 || c.Int64("varve.tier.cache.bytes") != 7 {
		t.Error("precedence is wrong")
	}
	if c.MetaDir() != "/data/meta" || c.TierURL() != "" {
		t.Errorf("meta %s, tier %q", c.MetaDir(), c.TierURL())
	}
	origins := map[string]string{}
	for _, v := range c.Values() {
		origins[v.Key.Name] = v.Origin
	}
	if origins["num.partitions"] != "--set" || origins["log.index.interval.bytes"] != "VARVE_LOG_INDEX_INTERVAL_BYTES" || origins["log.roll.hours"] != "server.properties:3" {
		t.Error(origins["num.partitions"], origins["log.index.interval.bytes"], origins["log.roll.hours"])
	}
}

// quickStart is the sample file of Apache Kafka for one node, without its comments.
const quickStart = `
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/srv/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
`

func TestQuickStartFileLoads(t *testing.T) {
	for _, file := range []string{quickStart, strings.Replace(quickStart, "controller.quorum.voters=1@localhost:9093", "controller.quorum.bootstrap.servers=localhost:9093", 1)} {
		c, warnings, err := load(t, file)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Listeners(); len(got) != 1 || got[0].String() != "PLAINTEXT://127.0.0.1:9092" {
			t.Errorf("listeners %v", got)
		}
		if got := c.ControllerListeners(); len(got) != 1 || got[0].String() != "CONTROLLER://127.0.0.1:9093" {
			t.Errorf("controller listeners %v", got)
		}
		if got := c.AdvertisedListeners(); len(got) != 1 || got[0].String() != "PLAINTEXT://localhost:9092" {
			t.Errorf("advertised %v", got)
		}
		if c.LogDir() != "/srv/kraft-combined-logs" || c.MetaDir() != "/srv/kraft-combined-logs/.varve/meta" || c.TierURL() != "" {
			t.Error(c.LogDir(), c.MetaDir(), c.TierURL())
		}
		topic, err := c.Topic(nil)
		if err != nil || topic.RemoteStorage || topic.SegmentBytes != 1<<30 {
			t.Error(topic, err)
		}
		inert := 0
		for _, w := range warnings {
			if strings.Contains(w.Text, "num.network.threads") {
				inert++
			}
		}
		if inert != 1 {
			t.Errorf("%d warnings name num.network.threads: %v", inert, warnings)
		}
	}
}

func TestErrorsNameKeyValueAndFix(t *testing.T) {
	for _, tc := range []struct{ file, set, want string }{
		{"num.partitons=3\n", "", "num.partitons (server.properties:1): unknown key; did you mean num.partitions?"},
		{"", "log.retention.mss=3", "log.retention.mss (--set): unknown key; did you mean log.retention.ms?"},
		{"", "segment.bytes=3000000", "segment.bytes (--set): unknown key; it is a topic's key; the default for all topics is log.segment.bytes"},
		{"", "qqqqqqqqqqqqqqqq=1", "unknown key; the keys are listed in docs/configuration.md"},
		{"a=b\nlog.segment.bytes = 12\n", "", "log.segment.bytes=12 (server.properties:2): allowed: at least 1048576"},
		{"", "log.segment.bytes=1g", "log.segment.bytes=1g (--set): allowed: a whole number from -2147483648 to 2147483647"},
		{"", "auto.create.topics.enable=yes", "allowed: true or false"},
		{"", "compression.type=LZ4", "allowed: one of uncompressed, zstd, lz4, snappy, gzip, producer"},
		{"", "log.cleanup.policy=delete,delete", `"delete" stands in it twice`},
		{"", "log.dirs=/a,/b", "log.dirs=/a,/b (--set): varve keeps its log in one folder; name one folder"},
		{"", "listeners=PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://0.0.0.0:9092 has no security and other machines could reach it; listen on 127.0.0.1, or set varve.insecure.listeners=true"},
		{"listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://kafka.example:9092\n", "", "set varve.insecure.listeners=true"},
		{"", "listeners=SSL://127.0.0.1:9093", "SSL asks for SSL; varve serves PLAINTEXT"},
		{"", "listeners=FOO://127.0.0.1:9093", "it has no protocol for listener FOO; add FOO:PLAINTEXT"},
		{"", "listeners=127.0.0.1:9093", `"127.0.0.1:9093" is not of the form NAME://host:port`},
		{"", "listeners=PLAINTEXT://127.0.0.1:99999", "port 99999 is not between 0 and 65535"},
		{"", "listeners=PLAINTEXT://127.0.0.1:1,plaintext://127.0.0.1:2", "listener name PLAINTEXT stands in it twice"},
		{"", "listeners=PLAINTEXT://127.0.0.1:9,SSL://127.0.0.1:9", "varve serves PLAINTEXT"},
		{"", "controller.listener.names=CONTROLLER", "CONTROLLER is not among the listeners"},
		{"", "advertised.listeners=EXTERNAL://127.0.0.1:9", "it has no protocol for listener EXTERNAL"},
		{"", "inter.broker.listener.name=X", "X is not among the listeners for brokers"},
		{"", "varve.http.listen=0.0.0.0:9644", "varve.insecure.listeners=true"},
		{"", "varve.http.listen=9644", "it is not of the form host:port"},
		{"", "process.roles=broker", "set process.roles=broker,controller"},
		{"", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "remove the key"},
		{"", "config.providers=file", "set such keys in the environment"},
		{"", "controller.quorum.voters=2@h:1", "this node, 1, is not among them"},
		{"", "controller.quorum.voters=1@h", `"1@h" is not of the form id@host:port`},
		{"node.id=1\nbroker.id=2\n", "", "it differs from node.id=1; remove broker.id"},
		{"varve.topic.remote.storage.enable=true\n", "", "there is no tier; set varve.tier.url"},
		{"remote.log.storage.system.enable=false\nvarve.tier.url=mem://\n", "", "varve.tier.url is set; remove one of the two"},
		{"", "log.retention.ms=0", "allowed: -1 for ever, or at least 1"},
		{"", "log.retention.hours=-7", "allowed: -1 for ever, or at least 1"},
		{"", "log.local.retention.ms=900000000", "Invalid value 900000000 for configuration local.retention.ms: Value must not be more than retention.ms property value: 604800000"},
		{"", "nonsense", "--set nonsense): it is not of the form key=value"},
		{"a=\\u12\n", "", `line 1: \u must be followed by four hexadecimal digits`},
	} {
		_, _, err := load(t, tc.file, nonEmpty(tc.set)...)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q %q: got %v, want %q", tc.file, tc.set, err, tc.want)
			continue
		}
		var typed *Error
		if !errors.As(err, &typed) {
			t.Errorf("%q %q: not an *Error", tc.file, tc.set)
		}
	}
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func TestAllErrorsAreToldAtOnce(t *testing.T) {
	_, _, err := load(t, "num.partitons=3\nnum.io.threads=x\n", "log.segment.bytes=1")
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("got %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	for env, want := range map[string]string{
		"VARVE_TIER_ULR=x":            "did you mean VARVE_TIER_URL?",
		"VARVE_SEGMENT_BYTES=1":       "the default for all topics is VARVE_LOG_SEGMENT_BYTES",
		"VARVE_NUM_PARTITIONS=x":      "num.partitions=x (VARVE_NUM_PARTITIONS): allowed",
		"VARVE_COMPLETELY_SOMETHING=": "listed in docs/configuration.md",
	} {
		if _, _, err := Load(LoadOptions{Env: []string{env}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", env, err, want)
		}
	}
	_, warnings, err := Load(LoadOptions{Env: []string{"VARVE_LISTENER_NAME_X_SSL_KEY=1", "VARVE_ZOOKEEPER_CONNECT=h"}})
	if err != nil || len(warnings) != 2 {
		t.Error(warnings, err)
	}
	seen := map[string]string{}
	for _, k := range Keys() {
		if k.Scope == ScopeTopic {
			continue
		}
		if strings.Contains(k.Name, "_") {
			t.Errorf("%s holds an underscore: its variable would be ambiguous", k.Name)
		}
		e := EnvName(k.Name)
		if seen[e] != "" || ignoredEnv(e) {
			t.Errorf("%s: variable %s is also that of %q, or ignored", k.Name, e, seen[e])
		}
		seen[e] = k.Name
	}
}

func TestInsecureListeners(t *testing.T) {
	c := mustLoad(t, "", "listeners=PLAINTEXT://:9092,EXT://0.0.0.0:9094,SIX://[::1]:9095", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,EXT:PLAINTEXT,SIX:PLAINTEXT",
		"advertised.listeners=EXT://ext.example:9094", "varve.insecure.listeners=true", "varve.http.listen=:9644")
	if c.Listeners()[0].Addr() != ":9092" || c.Listeners()[1].Addr() != "0.0.0.0:9094" || c.Listeners()[2].Addr() != "[::1]:9095" {
		t.Error(c.Listeners())
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if a := c.AdvertisedListeners(); a[0].Host != host || a[1].String() != "EXT://ext.example:9094" {
		t.Error(a)
	}
	if _, _, err := load(t, "", "listeners=PLAINTEXT://0.0.0.0:9092", "varve.insecure.listeners=true"); err == nil || !strings.Contains(err.Error(), "set advertised.listeners=PLAINTEXT://HOST:9092") {
		t.Error(err)
	}
}

func TestFolders(t *testing.T) {
	c := mustLoad(t, "", "log.dirs=/a", "varve.data.dir=/b", "metadata.log.dir=/c")
	if c.LogDir() != "/a" || c.MetaDir() != "/c/.varve/meta" || c.CacheDir() != "/b/cache" || c.TierURL() != "dir:///b/tier" {
		t.Error(c.LogDir(), c.MetaDir(), c.CacheDir(), c.TierURL())
	}
	if c := mustLoad(t, "", "varve.tier.url="); c.TierURL() != "" || c.Bool("varve.topic.remote.storage.enable") {
		t.Error("an empty tier URL is no tier")
	}
	if c := mustLoad(t, "", "varve.data.dir=/with space"); c.TierURL() != "dir:///with%20space/tier" {
		t.Error(c.TierURL())
	}
}
