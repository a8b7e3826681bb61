package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"varve/protocol"
)

// dynamic holds the values that were set while the cluster runs. It is replaced, never changed.
type dynamic struct {
	broker  map[string]setting // of this broker
	cluster map[string]setting // of all brokers
}

var noDynamic = &dynamic{}

func (c *Config) dynamic() *dynamic {
	if d := c.dyn.Load(); d != nil {
		return d
	}
	return noDynamic
}

// layer is one place where a key may have been set.
type layer struct {
	of     map[string]setting
	source Source
}

// layers returns where keys are set, the strongest first (DynamicBrokerConfig.java).
func (c *Config) layers() [3]layer {
	d := c.dynamic()
	return [3]layer{{d.broker, SourceDynamicBroker}, {d.cluster, SourceDynamicDefault}, {c.given, SourceStatic}}
}

// set returns the value that somebody set for a key.
func (c *Config) set(name string) (setting, Source, bool) {
	for _, l := range c.layers() {
		if s, ok := l.of[name]; ok {
			return s, l.source, true
		}
	}
	return setting{}, SourceDefault, false
}

// SetDynamic puts the dynamic values of this broker, and of all brokers, in place of those before. They act on whatever
// reads the Config from then on. Values that this version does not take are left out; the error says which.
func (c *Config) SetDynamic(broker, cluster map[string]string) error {
	var errs []error
	d := &dynamic{broker: parseDynamic(broker, true, &errs), cluster: parseDynamic(cluster, false, &errs)}
	c.dyn.Store(d)
	return errors.Join(errs...)
}

func parseDynamic(raw map[string]string, perBroker bool, errs *[]error) map[string]setting {
	out := make(map[string]setting, len(raw))
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		k, known := brokerTable[name]
		if err := mayChange(k, known, name, perBroker); err != nil {
			*errs = append(*errs, err)
			continue
		}
		v, err := k.Parse(raw[name])
		if err != nil {
			*errs = append(*errs, &Error{Key: name, Value: shown(k, raw[name]), Origin: "dynamic", What: err.Error()})
			continue
		}
		out[name] = setting{raw: raw[name], value: v, origin: "dynamic"}
	}
	return out
}

func refuse(format string, args ...any) error {
	return protocol.Errorf(protocol.InvalidRequest, format, args...)
}

// mayChange says why a broker key cannot be set while the broker runs, in Kafka's words (DynamicBrokerConfig.validate).
// Kafka takes keys that it does not know, for plugins; here there are none, and such a key is a mistake.
func mayChange(k Key, known bool, name string, perBroker bool) error {
	switch {
	case !known:
		return refuse("Unknown broker configuration %s; %s", name, suggest(name))
	case k.Dynamic == ReadOnly:
		return refuse("Cannot update these configs dynamically: Set(%s)", name)
	case strings.HasPrefix(name, "ssl.") || strings.HasPrefix(name, "sasl."):
		return refuse("These security configs can be dynamically updated only per-listener using the listener prefix: Set(%s)", name)
	case k.Dynamic == PerBroker && !perBroker:
		return refuse("Cannot update these configs at default cluster level, broker id must be specified: Set(%s)", name)
	}
	return nil
}

// Op says what a Change does (AlterConfigOp.OpType).
type Op int8

// The operations. The last two are for lists.
const (
	OpSet      Op = 0
	OpDelete   Op = 1
	OpAppend   Op = 2
	OpSubtract Op = 3
)

func (o Op) String() string { return [...]string{"SET", "DELETE", "APPEND", "SUBTRACT"}[o] }

// Change changes one key of a topic's overrides or of a broker's dynamic values.
type Change struct {
	Name  string
	Op    Op
	Value string // but for OpDelete
}

// edit applies changes to a copy of old.
func edit(table map[string]Key, old map[string]string, changes []Change) (map[string]string, error) {
	next := maps.Clone(old)
	if next == nil {
		next = map[string]string{}
	}
	for _, ch := range changes {
		switch ch.Op {
		case OpSet:
			next[ch.Name] = ch.Value
		case OpDelete:
			delete(next, ch.Name)
		case OpAppend, OpSubtract:
			k, known := table[ch.Name]
			if !known || k.Type != TypeList {
				return nil, invalid("Can't %s to key %s because its type is not LIST.", ch.Op, ch.Name)
			}
			value, ok := next[ch.Name]
			if !ok {
				value = k.Default
			}
			next[ch.Name] = joinList(editList(splitList(value), ch))
		default:
			return nil, refuse("Unknown operations type %d", int8(ch.Op))
		}
	}
	return next, nil
}

func editList(items []string, ch Change) []string {
	for _, item := range splitList(ch.Value) {
		switch at := slices.Index(items, item); {
		case ch.Op == OpAppend && at < 0:
			items = append(items, item)
		case ch.Op == OpSubtract && at >= 0:
			items = slices.Delete(items, at, at+1)
		}
	}
	return items
}

// AlterTopic returns a topic's overrides after the changes, or after they were replaced by those of the changes alone. A topic
// that leaves the tier says so in its own overrides from then on.
//
// Errors: InvalidConfig for keys and values that a topic cannot have, and for taking it out of the tier without
// remote.log.delete.on.disable; InvalidRequest for an unknown operation.
func (c *Config) AlterTopic(old map[string]string, changes []Change, replace bool) (map[string]string, error) {
	from := old
	if replace {
		from = nil
	}
	next, err := edit(topicTable, from, changes)
	if err != nil {
		return nil, err
	}
	t, err := c.Topic(next)
	if err != nil {
		return nil, err
	}
	if t.RemoteStorage || !c.wasTiered(old) {
		return c.PinTiering(next), nil
	}
	if !isTrue(next["remote.log.delete.on.disable"]) {
		return nil, invalid("It is invalid to disable remote storage without deleting remote data. " +
			"If you want to keep the remote data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. " +
			"If you want to disable remote storage and delete all remote data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true`.")
	}
	next["remote.storage.enable"] = "false"
	return next, nil
}

// wasTiered says whether a topic with these overrides has its older segments in the tier, also while this broker has none.
func (c *Config) wasTiered(overrides map[string]string) bool {
	if v, ok := overrides["remote.storage.enable"]; ok {
		return isTrue(v)
	}
	t, err := c.Topic(overrides)
	return err == nil && t.RemoteStorage
}

func isTrue(v string) bool { return strings.EqualFold(strings.TrimSpace(v), "true") }

// AlterBroker returns the dynamic values of a broker, or with perBroker false of all brokers, after the changes, or after
// they were replaced by those of the changes alone.
//
// Errors: InvalidRequest for what cannot be changed while the broker runs and for values that a key cannot have, as in
// Kafka; InvalidConfig for lists' operations on other keys.
func (c *Config) AlterBroker(old map[string]string, changes []Change, replace, perBroker bool) (map[string]string, error) {
	from := old
	if replace {
		from = nil
	}
	next, err := edit(brokerTable, from, changes)
	if err != nil {
		return nil, err
	}
	for _, ch := range changes {
		k, known := brokerTable[ch.Name]
		if err := mayChange(k, known, ch.Name, perBroker); err != nil {
			return nil, err
		}
		if ch.Op == OpDelete {
			continue
		}
		if _, err := k.Parse(next[ch.Name]); err != nil {
			return nil, refuse("Invalid value %s for configuration %s: %v", shown(k, next[ch.Name]), ch.Name, err)
		}
	}
	return next, c.fits(next, perBroker)
}

// fits says whether the configuration still fits together with these dynamic values.
func (c *Config) fits(values map[string]string, perBroker bool) error {
	var errs []error
	d := *c.dynamic()
	if perBroker {
		d.broker = parseDynamic(values, true, &errs)
	} else {
		d.cluster = parseDynamic(values, false, &errs)
	}
	candidate := &Config{given: c.given, derived: c.derived}
	candidate.dyn.Store(&d)
	errs = nil // what an older version left behind is passed over
	candidate.checkTopicDefaults(&errs)
	candidate.checkLocalDefaults(&errs)
	candidate.checkConnections(&errs)
	if len(errs) > 0 {
		return refuse("%v", fmt.Errorf("invalid configuration: %w", errs[0]))
	}
	return nil
}

// checkLocalDefaults holds local retention against the total one for topics that may be tiered, whether topics are by
// default or not (DynamicLogConfig.validateLogLocalRetentionMs and -Bytes).
func (c *Config) checkLocalDefaults(errs *[]error) {
	t := (&topicResolver{c: c}).topic()
	*errs = append(*errs, checkLocal("ms", t.LocalRetentionMs, t.RetentionMs, 0), checkLocal("bytes", t.LocalRetentionBytes, t.RetentionBytes, 0))
	*errs = slices.DeleteFunc(*errs, func(err error) bool { return err == nil })
}

// DescribeDynamicDefaults returns the dynamic values of all brokers, sorted by name.
func (c *Config) DescribeDynamicDefaults() []Described {
	var out []Described
	values := c.dynamic().cluster
	for _, name := range slices.Sorted(maps.Keys(values)) {
		k := brokerTable[name]
		d := Described{Name: name, Value: values[name].raw, Source: SourceDynamicDefault, Type: k.Type, Sensitive: k.Sensitive(), Doc: k.Doc}
		if d.Sensitive {
			d.Value, d.Null = "", true
		}
		d.Synonyms = []Synonym{{Name: name, Value: d.Value, Null: d.Null, Source: SourceDynamicDefault}}
		out = append(out, d)
	}
	return out
}
