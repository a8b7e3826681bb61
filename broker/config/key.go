package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Type is the data type of a key's value. The numbers are those of Kafka's DescribeConfigs (DescribeConfigsResponse.ConfigType).
type Type int8

// The types of values.
const (
	TypeBool     Type = 1
	TypeString   Type = 2
	TypeInt      Type = 3 // 32 bits, signed
	TypeShort    Type = 4 // 16 bits, signed
	TypeLong     Type = 5 // 64 bits, signed
	TypeDouble   Type = 6
	TypeList     Type = 7 // items separated by commas
	TypeClass    Type = 8
	TypePassword Type = 9
)

// String returns the name that the reference page uses.
func (t Type) String() string {
	names := [...]string{"", "boolean", "string", "int", "short", "long", "double", "list", "class", "password"}
	if t < 0 || int(t) >= len(names) {
		return ""
	}
	return names[t]
}

// Scope says where a key may be set.
type Scope uint8

// The scopes.
const (
	ScopeBroker Scope = iota // file, environment, --set
	ScopeTopic               // a topic's own configuration
)

// Dynamic says how far a broker key can be changed at run time in Apache Kafka (DynamicBrokerConfig.java).
type Dynamic uint8

// The modes.
const (
	ReadOnly Dynamic = iota
	PerBroker
	ClusterWide
)

// Key is one row of the table. A topic key and a broker key may share a name (compression.type): they are two rows.
type Key struct {
	Name     string
	Type     Type
	Default  string // text of the default; meaningless when Null
	Null     bool   // there is no default value
	Check    Check  // what is allowed beyond the type
	Dynamic  Dynamic
	Acts     bool // changes what varve does; the others are accepted and have no effect
	Internal bool // left out of DescribeConfigs and of the reference page
	Doc      string
	Scope    Scope
}

// Sensitive tells whether the value must not be shown.
func (k Key) Sensitive() bool { return k.Type == TypePassword }

// Check is a rule on the values of a key, with the words that name what is allowed. The zero Check allows all.
type Check struct {
	Allowed string
	ok      func(v any) bool
}

func (c Check) holds(v any) bool { return c.ok == nil || c.ok(v) }

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

func atLeast(least float64) Check {
	return Check{Allowed: "at least " + plain(least), ok: func(v any) bool {
		n, ok := number(v)
		return ok && n >= least
	}}
}

func between(least, most float64) Check {
	return Check{Allowed: "between " + plain(least) + " and " + plain(most), ok: func(v any) bool {
		n, ok := number(v)
		return ok && n >= least && n <= most
	}}
}

func betweenOr(least, most, other float64) Check {
	inner := between(least, most)
	return Check{Allowed: inner.Allowed + ", or " + plain(other), ok: func(v any) bool {
		n, ok := number(v)
		return ok && n == other || inner.ok(v)
	}}
}

// oneOf checks a text, or each item of a list.
func oneOf(allowed ...string) Check {
	return Check{Allowed: "one of " + strings.Join(allowed, ", "), ok: func(v any) bool {
		switch t := v.(type) {
		case string:
			return slices.Contains(allowed, t)
		case []string:
			for _, item := range t {
				if !slices.Contains(allowed, item) {
					return false
				}
			}
			return true
		}
		return false
	}}
}

func oneOfFold(allowed ...string) Check {
	inner := oneOf(allowed...)
	return Check{Allowed: inner.Allowed + " (in any case)", ok: func(v any) bool {
		t, ok := v.(string)
		return ok && inner.ok(strings.ToUpper(t))
	}}
}

// throttled is the form of *.replication.throttled.replicas (ThrottledReplicaListValidator.java).
func throttled() Check {
	return Check{Allowed: "* or a list of partition:broker", ok: func(v any) bool {
		items, ok := v.([]string)
		if !ok || len(items) == 1 && items[0] == "*" {
			return ok
		}
		for _, item := range items {
			p, b, found := strings.Cut(item, ":")
			if _, err := strconv.ParseUint(p, 10, 31); err != nil || !found {
				return false
			}
			if _, err := strconv.ParseUint(b, 10, 31); err != nil {
				return false
			}
		}
		return true
	}}
}

func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// Parse turns text into the value of the key: bool, int64, float64, string or []string. Text is trimmed first, as
// ConfigDef.java does. The error names what is allowed, without key and value.
func (k Key) Parse(raw string) (any, error) {
	v, allowed := k.parseType(strings.TrimSpace(raw))
	if v == nil {
		return nil, fmt.Errorf("allowed: %s", allowed)
	}
	if items, ok := v.([]string); ok {
		if dup, found := duplicate(items); found {
			return nil, fmt.Errorf("%q stands in it twice", dup)
		}
	}
	if !k.Check.holds(v) {
		return nil, fmt.Errorf("allowed: %s", k.Check.Allowed)
	}
	return v, nil
}

// parseType returns nil and what is allowed when raw is not of the key's type.
func (k Key) parseType(raw string) (v any, allowed string) {
	switch k.Type {
	case TypeBool:
		switch {
		case strings.EqualFold(raw, "true"):
			return true, ""
		case strings.EqualFold(raw, "false"):
			return false, ""
		}
		return nil, "true or false"
	case TypeInt:
		return parseInteger(raw, 32)
	case TypeShort:
		return parseInteger(raw, 16)
	case TypeLong:
		return parseInteger(raw, 64)
	case TypeDouble:
		f, err := strconv.ParseFloat(raw, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, "a number"
		}
		return f, ""
	case TypeList:
		return splitList(raw), ""
	}
	return raw, ""
}

func parseInteger(raw string, bits int) (any, string) {
	n, err := strconv.ParseInt(raw, 10, bits)
	if err == nil {
		return n, ""
	}
	top := int64(1)<<(bits-1) - 1
	return nil, fmt.Sprintf("a whole number from %d to %d", -top-1, top)
}

func splitList(raw string) []string {
	if raw == "" {
		return []string{}
	}
	items := strings.Split(raw, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

func duplicate(items []string) (string, bool) {
	seen := make(map[string]bool, len(items))
	for _, item := range items {
		if seen[item] {
			return item, true
		}
		seen[item] = true
	}
	return "", false
}

// Keys returns the whole table: broker keys in the order of the reference page, then topic keys.
func Keys() []Key {
	var all []Key
	for _, s := range sections() {
		all = append(all, s.keys...)
	}
	return all
}

type section struct {
	title string
	keys  []Key
}

// sections returns the table by the headings of the reference page, varve's own keys first.
func sections() []section {
	parts := []section{
		{"varve's own", varveKeys},
		{"Server, listeners and requests", serverKeys},
		{"Log", logKeys},
		{"Replication and metadata", clusterKeys},
		{"Tier, by the names of Apache Kafka", remoteKeys},
		{"Groups, transactions and share groups", coordKeys},
		{"Security", securityKeys},
		{"Topic configuration", topicKeys},
	}
	topics := slices.Clone(topicKeys)
	for i := range topics {
		topics[i].Scope = ScopeTopic
	}
	parts[len(parts)-1].keys = topics
	return parts
}

var brokerTable, topicTable = index()

func index() (broker, topic map[string]Key) {
	broker, topic = map[string]Key{}, map[string]Key{}
	for _, k := range Keys() {
		if k.Scope == ScopeTopic {
			topic[k.Name] = k
		} else {
			broker[k.Name] = k
		}
	}
	return broker, topic
}
