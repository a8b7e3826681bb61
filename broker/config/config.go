package config

import (
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// Config is a validated broker configuration, safe for concurrent use. Nothing in it changes but the values of dynamic
// keys, by SetDynamic.
type Config struct {
	dyn      atomic.Pointer[dynamic]
	given    map[string]setting // broker keys that somebody set
	derived  map[string]string  // defaults that depend on other keys
	hasFile  bool
	warnings []Warning

	nodeID      int32
	listeners   []Listener
	controllers []Listener
	advertised  []Listener
	voters      []Voter
	logDir      string
	metaDir     string
	cacheDir    string
}

// Value is a broker key with what it is set to.
type Value struct {
	Key    Key
	Raw    string
	Null   bool // it has no value
	Source Source
	Origin string // "--set", "VARVE_X", "server.properties:12"; empty for defaults
}

func (c *Config) value(name string) Value {
	k, known := brokerTable[name]
	if !known {
		panic("config: " + name + " is not in the table")
	}
	if s, source, ok := c.set(name); ok {
		return Value{Key: k, Raw: s.raw, Source: source, Origin: s.origin}
	}
	return c.defaultOf(name)
}

// defaultOf returns the value of a key that nobody set.
func (c *Config) defaultOf(name string) Value {
	k := brokerTable[name]
	if d, ok := c.derived[name]; ok {
		return Value{Key: k, Raw: d, Source: SourceDefault}
	}
	return Value{Key: k, Raw: k.Default, Null: k.Null, Source: SourceDefault}
}

// parsed returns the value of a key, nil when it has none.
func (c *Config) parsed(name string) any {
	if s, _, ok := c.set(name); ok {
		return s.value
	}
	v := c.value(name)
	if v.Null {
		return nil
	}
	p, err := v.Key.Parse(v.Raw)
	if err != nil {
		panic("config: default of " + name + ": " + err.Error())
	}
	return p
}

// The accessors below panic when the key is not in the table or of another type: that is a bug of the caller, and any
// test that starts a broker finds it. A key without a value gives the zero value.

// Int returns the value of a key of type int or short.
func (c *Config) Int(name string) int { return int(c.Int64(name)) }

// Int64 returns the value of a key of type int, short or long.
func (c *Config) Int64(name string) int64 { return get[int64](c, name) }

// Float returns the value of a key of type double.
func (c *Config) Float(name string) float64 { return get[float64](c, name) }

// Bool returns the value of a key of type boolean.
func (c *Config) Bool(name string) bool { return get[bool](c, name) }

// List returns the items of a key of type list.
func (c *Config) List(name string) []string { return get[[]string](c, name) }

func get[T any](c *Config, name string) T {
	var zero T
	v := c.parsed(name)
	if v == nil {
		return zero
	}
	t, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("config: %s is not a %T", name, zero))
	}
	return t
}

// String returns the value of any key as text, "" when it has none.
func (c *Config) String(name string) string { return c.value(name).Raw }

var units = []struct {
	suffix string
	unit   time.Duration
}{{".ms", time.Millisecond}, {".seconds", time.Second}, {".minutes", time.Minute}, {".hours", time.Hour}}

// Duration returns the value of a key whose name ends in .ms, .seconds, .minutes or .hours; the longest duration when it
// is longer than that (292 years).
func (c *Config) Duration(name string) time.Duration {
	n := c.Int64(name)
	for _, u := range units {
		if strings.HasSuffix(name, u.suffix) {
			if n > math.MaxInt64/int64(u.unit) {
				return math.MaxInt64
			}
			return time.Duration(n) * u.unit
		}
	}
	panic("config: " + name + " is not a duration")
}

// Values returns all broker keys with their values, in the order of Keys.
func (c *Config) Values() []Value {
	var all []Value
	for _, k := range Keys() {
		if k.Scope == ScopeBroker {
			all = append(all, c.value(k.Name))
		}
	}
	return all
}

// NodeID returns node.id (or broker.id).
func (c *Config) NodeID() int32 { return c.nodeID }

// LogDir returns the one folder of partition data, as an absolute path.
func (c *Config) LogDir() string { return c.logDir }

// MetaDir returns the folder of the metastore, as an absolute path.
func (c *Config) MetaDir() string { return c.metaDir }

// CacheDir returns the folder of the tier's chunk cache, as an absolute path.
func (c *Config) CacheDir() string { return c.cacheDir }

// TierURL returns the URL of the object store; "" when there is no tier.
func (c *Config) TierURL() string { return c.String("varve.tier.url") }

// resolve computes what depends on several keys and returns what does not fit together.
func (c *Config) resolve() []error {
	errs := c.resolveFolders()
	c.resolveTier(&errs)
	c.resolveNode(&errs)
	c.refuseUnsupported(&errs)
	if len(errs) == 0 {
		c.resolveListeners(&errs)
		c.checkTopicDefaults(&errs)
		c.checkConnections(&errs)
	}
	return errs
}

// at makes an Error about a key that was given.
func (c *Config) at(name, what, fix string) *Error {
	v := c.value(name)
	return &Error{Key: name, Value: shown(v.Key, v.Raw), Origin: v.Origin, What: what, Fix: fix}
}

func (c *Config) isGiven(name string) bool {
	_, ok := c.given[name]
	return ok
}

func (c *Config) resolveFolders() (errs []error) {
	c.derived = map[string]string{}
	key, dirs := "log.dirs", c.List("log.dirs")
	if !c.isGiven(key) && c.isGiven("log.dir") {
		key, dirs = "log.dir", c.List("log.dir")
	}
	if len(dirs) > 1 {
		errs = append(errs, c.at(key, "varve keeps its log in one folder", "name one folder, on a volume that spans the disks"))
	}
	if len(dirs) == 0 && c.isGiven(key) || len(dirs) > 0 && dirs[0] == "" {
		errs = append(errs, c.at(key, "it names no folder", "name one folder or remove the key"))
	}
	if len(errs) > 0 {
		return errs
	}
	base := c.String("varve.data.dir")
	if len(dirs) == 1 && !c.isGiven("varve.data.dir") {
		base = filepath.Join(dirs[0], ".varve")
	}
	c.logDir = filepath.Join(base, "log")
	if len(dirs) == 1 {
		c.logDir = dirs[0]
	}
	c.metaDir = filepath.Join(base, "meta")
	if dir := c.String("metadata.log.dir"); dir != "" {
		c.metaDir = filepath.Join(dir, ".varve", "meta")
	}
	c.cacheDir = filepath.Join(base, "cache")
	tier := filepath.Join(base, "tier")
	for _, p := range []*string{&c.logDir, &c.metaDir, &c.cacheDir, &tier} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return append(errs, &Error{Key: "varve.data.dir", Value: base, What: err.Error()})
		}
		*p = abs
	}
	if !c.isGiven("log.dirs") {
		c.derived["log.dirs"] = c.logDir
	}
	if !c.hasFile {
		c.derived["varve.tier.url"] = (&url.URL{Scheme: "dir", Path: filepath.ToSlash(tier)}).String()
	}
	return nil
}

func (c *Config) resolveTier(errs *[]error) {
	const system = "remote.log.storage.system.enable"
	has := c.TierURL() != ""
	if !c.isGiven("varve.topic.remote.storage.enable") {
		c.derived["varve.topic.remote.storage.enable"] = fmt.Sprint(has)
	} else if c.Bool("varve.topic.remote.storage.enable") && !has {
		*errs = append(*errs, c.at("varve.topic.remote.storage.enable", "there is no tier", "set varve.tier.url"))
	}
	switch {
	case !c.isGiven(system):
		c.derived[system] = fmt.Sprint(has)
	case c.Bool(system) && !has:
		c.warnings = append(c.warnings, Warning{system, "without effect because varve.tier.url is not set: nothing settles into an object store"})
	case !c.Bool(system) && c.isGiven("varve.tier.url") && has:
		*errs = append(*errs, c.at(system, "varve.tier.url is set", "remove one of the two"))
	case !c.Bool(system):
		c.derived["varve.tier.url"], c.derived["varve.topic.remote.storage.enable"] = "", "false"
	}
}

func (c *Config) resolveNode(errs *[]error) {
	c.nodeID = int32(c.Int64("node.id"))
	if c.isGiven("broker.id") && c.Int64("broker.id") >= 0 {
		if c.isGiven("node.id") && c.Int64("broker.id") != c.Int64("node.id") {
			*errs = append(*errs, c.at("broker.id", "it differs from node.id="+c.String("node.id"), "remove broker.id"))
		}
		c.nodeID = int32(c.Int64("broker.id"))
	}
	if roles := c.List("process.roles"); len(roles) != 2 {
		*errs = append(*errs, c.at("process.roles", "each varve node is broker and controller in one", "set process.roles=broker,controller or remove the key"))
	}
	c.resolveVoters(errs)
}

func (c *Config) refuseUnsupported(errs *[]error) {
	if c.String("authorizer.class.name") != "" {
		*errs = append(*errs, c.at("authorizer.class.name", "varve does not authorize requests, so an authorizer that is asked for would be missing", "remove the key"))
	}
	if len(c.List("config.providers")) > 0 {
		*errs = append(*errs, c.at("config.providers", "varve does not run Java classes, so variables would stay unfilled", "set such keys in the environment, for example "+EnvName("varve.tier.url")))
	}
	if p := c.String("security.inter.broker.protocol"); p != "PLAINTEXT" {
		*errs = append(*errs, c.at("security.inter.broker.protocol", unsupportedProtocol, "use PLAINTEXT on a network of your own"))
	}
}

func (c *Config) checkTopicDefaults(errs *[]error) {
	for _, name := range []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"} {
		if _, _, set := c.set(name); !set {
			continue
		}
		if n := c.Int64(name); n == 0 || n < unlimited {
			*errs = append(*errs, c.at(name, "allowed: -1 for ever, or at least 1", ""))
		}
	}
	if _, err := c.Topic(nil); err != nil {
		*errs = append(*errs, &Error{What: "the defaults for topics do not fit together: " + err.Error()})
	}
}

// advertisedHost is what clients are told when a listener is open on all interfaces (SocketServerConfigs.java).
func advertisedHost() string {
	if h, err := os.Hostname(); err == nil {
		return h
	}
	return "localhost"
}
