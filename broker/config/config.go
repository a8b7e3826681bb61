package config

import "time"

// Type is the data type of a key's value. The numbers are those of Kafka's DescribeConfigs (ConfigResponse.ConfigType).
type Type int8

// The types of values.
const (
	TypeBool     Type = 1
	TypeString   Type = 2
	TypeInt      Type = 3
	TypeShort    Type = 4
	TypeLong     Type = 5
	TypeDouble   Type = 6
	TypeList     Type = 7
	TypeClass    Type = 8
	TypePassword Type = 9
)

// Scope says where a key may be set.
type Scope uint8

// The scopes.
const (
	ScopeBroker Scope = iota
	ScopeTopic
)

// Source says where a value came from. The numbers are those of Kafka's DescribeConfigs (ConfigEntry.ConfigSource).
type Source int8

// The sources.
const (
	SourceTopic         Source = 1
	SourceDynamicBroker Source = 2
	SourceStatic        Source = 4 // --set, environment or file
	SourceDefault       Source = 5
)

// Key is one row of the table.
type Key struct {
	Name    string
	Type    Type
	Default string
	Doc     string
	Scope   Scope
}

// Value is a key with what it is set to.
type Value struct {
	Key    Key
	Raw    string
	Source Source
}

// Warning is something in the configuration that is accepted but has no effect, or probably not the one that is meant.
type Warning struct {
	Key  string
	Text string
}

// LoadOptions says where Load looks.
type LoadOptions struct {
	Sets []string // "key=value", from --set; later ones win
	Env  []string // os.Environ()
	File string   // path of a server.properties; "" for none
	Data string   // --data; "" for none
}

// Config is a validated broker configuration. It is immutable.
type Config struct {
}

// Listener is one entry of listeners or advertised.listeners.
type Listener struct {
	Name     string // "PLAINTEXT"
	Protocol string // "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
	Host     string // "" means all interfaces
	Port     int
}

// Voter is one entry of controller.quorum.voters.
type Voter struct {
	ID   int32
	Host string
	Port int
}

// Synonym is another key that a value could have come from.
type Synonym struct {
	Name   string
	Value  string
	Null   bool
	Source Source
}

// Described is one entry of a DescribeConfigs response.
type Described struct {
	Name      string
	Value     string
	Null      bool // no value, or sensitive
	Source    Source
	Type      Type
	ReadOnly  bool
	Sensitive bool
	Doc       string
	Synonyms  []Synonym // from the one that is in force down; empty when there is none
}

// Topic is the effective configuration of one topic. -1 means no limit wherever Kafka says so; -2 never appears.
type Topic struct {
	SegmentBytes         int32
	SegmentMs            int64
	SegmentJitterMs      int64
	SegmentIndexBytes    int32
	IndexIntervalBytes   int32
	FlushMessages        int64
	FlushMs              int64
	MaxMessageBytes      int32
	LogAppendTime        bool
	TimestampBeforeMaxMs int64
	TimestampAfterMaxMs  int64

	CompressionType      string // "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"
	CompressionGzipLevel int
	CompressionLZ4Level  int
	CompressionZstdLevel int

	CleanupDelete          bool
	CleanupCompact         bool
	DeleteRetentionMs      int64
	MinCompactionLagMs     int64
	MaxCompactionLagMs     int64
	MinCleanableDirtyRatio float64

	RetentionMs         int64
	RetentionBytes      int64
	LocalRetentionMs    int64
	LocalRetentionBytes int64

	RemoteStorage         bool
	RemoteCopyDisable     bool
	RemoteDeleteOnDisable bool
	RemoteCopyLagMs       int64
	RemoteCopyLagBytes    int64

	MinInsyncReplicas     int32
	UncleanLeaderElection bool
	FileDeleteDelayMs     int64
	Preallocate           bool
}

// Keys returns the whole table, broker keys first, each part sorted by name.
func Keys() []Key { return nil }

// Load reads the configuration. Precedence: Sets, then Env, then File, then defaults.
func Load(opts LoadOptions) (*Config, []Warning, error) { return &Config{}, nil, nil }

// Int returns the value of a key of type int or short. Asking for a key that is not in the table is a broken invariant and panics.
func (c *Config) Int(name string) int { return 0 }

// Int64 returns the value of an integer key.
func (c *Config) Int64(name string) int64 { return 0 }

// Float returns the value of a key of type double.
func (c *Config) Float(name string) float64 { return 0 }

// Bool returns the value of a boolean key.
func (c *Config) Bool(name string) bool { return false }

// String returns the value of any key as text; "" when it has none.
func (c *Config) String(name string) string { return "" }

// List returns the items of a list key.
func (c *Config) List(name string) []string { return nil }

// Duration returns the value of a key whose name ends in .ms, .seconds, .minutes or .hours.
func (c *Config) Duration(name string) time.Duration { return 0 }

// Values returns all broker keys with their values.
func (c *Config) Values() []Value { return nil }

// NodeID returns node.id.
func (c *Config) NodeID() int32 { return 0 }

// Listeners returns the listeners for clients and brokers (not the controller's).
func (c *Config) Listeners() []Listener { return nil }

// ControllerListeners returns the listeners named by controller.listener.names.
func (c *Config) ControllerListeners() []Listener { return nil }

// AdvertisedListeners returns what clients are told, one for each of Listeners, in their order.
func (c *Config) AdvertisedListeners() []Listener { return nil }

// Voters returns controller.quorum.voters.
func (c *Config) Voters() []Voter { return nil }

// LogDir returns the one folder of partition data.
func (c *Config) LogDir() string { return "" }

// MetaDir returns the folder of the metastore.
func (c *Config) MetaDir() string { return "" }

// CacheDir returns the folder of the tier's chunk cache.
func (c *Config) CacheDir() string { return "" }

// TierURL returns the URL of the object store; "" when there is no tier.
func (c *Config) TierURL() string { return "" }

// Topic returns the effective configuration of a topic with these overrides. The error is a *protocol.Error with code InvalidConfig.
func (c *Config) Topic(overrides map[string]string) (Topic, error) { return Topic{}, nil }

// ValidateTopic says whether a topic may have these overrides. The error is a *protocol.Error with code InvalidConfig that names key and fix.
func (c *Config) ValidateTopic(overrides map[string]string) error { return nil }

// DescribeTopic returns all topic keys as they are in force for a topic with these overrides, sorted by name.
func (c *Config) DescribeTopic(overrides map[string]string) []Described { return nil }

// DescribeBroker returns all broker keys, sorted by name.
func (c *Config) DescribeBroker() []Described { return nil }
