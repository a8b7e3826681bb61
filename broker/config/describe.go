package config

import (
	"cmp"
	"slices"
	"strings"
)

// Described is one entry of a DescribeConfigs response.
type Described struct {
	Name      string
	Value     string
	Null      bool // there is no value, or it is sensitive
	Source    Source
	Type      Type
	ReadOnly  bool
	Sensitive bool
	Doc       string
	Synonyms  []Synonym // values it could have come from, the one in force first; empty when it has none
}

// Synonym is one value that an entry of a DescribeConfigs response could have come from.
type Synonym struct {
	Name   string
	Value  string
	Null   bool // it is sensitive
	Source Source
}

// brokerSynonyms are broker keys of which one stands in for another, the strongest first (DynamicBrokerConfig.java, brokerConfigSynonyms).
var brokerSynonyms = map[string][]string{
	"log.roll.ms":           {"log.roll.hours"},
	"log.roll.jitter.ms":    {"log.roll.jitter.hours"},
	"log.retention.ms":      {"log.retention.minutes", "log.retention.hours"},
	"log.flush.interval.ms": {"log.flush.scheduler.interval.ms"},
}

// DescribeTopic returns all topic keys as they are in force for a topic with these overrides, sorted by name. Overrides
// that are not valid are shown as far as they can be read.
func (c *Config) DescribeTopic(overrides map[string]string) []Described {
	r := &topicResolver{c: c, overrides: overrides}
	r.deriveTiering()
	var out []Described
	for _, k := range topicKeys {
		if k.Internal {
			continue
		}
		d := Described{Name: k.Name, Type: k.Type, Doc: k.Doc, Sensitive: k.Sensitive()}
		var v any
		v, d.Source = r.value(k.Name)
		d.Null = v == nil
		if v != nil {
			d.Value = textOf(v)
		}
		if raw, ok := r.overrides[k.Name]; ok {
			d.Synonyms = append(d.Synonyms, Synonym{Name: k.Name, Value: raw, Source: SourceTopic})
		}
		if k.Name != "remote.storage.enable" || !r.untiered {
			var names []string
			for _, s := range topicSynonyms[k.Name] {
				names = append(names, s.key)
			}
			d.Synonyms = append(d.Synonyms, c.synonyms(names, r.derived[k.Name])...)
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Described) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// synonyms returns what broker keys contribute, the strongest first: the values that were set, then defaults (instead is
// shown in place of these if it is not nil).
func (c *Config) synonyms(names []string, instead any) []Synonym {
	var out []Synonym
	add := func(name, value string, source Source) {
		s := Synonym{Name: name, Value: value, Source: source}
		if brokerTable[name].Sensitive() {
			s.Value, s.Null = "", true
		}
		out = append(out, s)
	}
	for _, l := range c.layers() {
		for _, name := range names {
			if s, ok := l.of[name]; ok {
				add(name, s.raw, l.source)
			}
		}
	}
	for _, name := range names {
		v := c.defaultOf(name)
		switch {
		case v.Null:
		case instead != nil:
			add(name, textOf(instead), SourceDefault)
		default:
			add(name, v.Raw, SourceDefault)
		}
	}
	return out
}

// DescribeBroker returns all broker keys, sorted by name.
func (c *Config) DescribeBroker() []Described {
	var out []Described
	for _, v := range c.Values() {
		k := v.Key
		if k.Internal {
			continue
		}
		d := Described{Name: k.Name, Value: v.Raw, Null: v.Null, Source: v.Source, Type: k.Type, ReadOnly: k.Dynamic == ReadOnly, Sensitive: k.Sensitive(), Doc: k.Doc}
		if d.Sensitive {
			d.Value, d.Null = "", true
		}
		d.Synonyms = c.synonyms(append([]string{k.Name}, brokerSynonyms[k.Name]...), nil)
		if len(d.Synonyms) > 0 {
			d.Source = d.Synonyms[0].Source
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Described) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func joinList(items []string) string { return strings.Join(items, ",") }
