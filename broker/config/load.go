package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LoadOptions says where Load looks.
type LoadOptions struct {
	Sets []string // "key=value", from --set; later ones win
	Env  []string // os.Environ()
	File string   // path of a server.properties; "" for none
	Data string   // --data; "" for none. It is the same as --set varve.data.dir, but weaker
}

// Source says where a value came from. The numbers are those of Kafka's DescribeConfigs (DescribeConfigsResponse.ConfigSource).
type Source int8

// The sources.
const (
	SourceTopic          Source = 1
	SourceDynamicBroker  Source = 2 // set for this broker while it runs
	SourceDynamicDefault Source = 3 // set for all brokers
	SourceStatic         Source = 4 // --set, environment or file
	SourceDefault        Source = 5
)

// setting is a value that somebody gave.
type setting struct {
	raw    string
	value  any // parsed
	origin string
}

// Load reads the configuration. Precedence: Sets, then Data, then Env, then File, then defaults. The error joins one
// *Error for each thing that is wrong, so that all of them can be mended at once; a file that cannot be read is one too.
func Load(opts LoadOptions) (*Config, []Warning, error) {
	l := loader{given: map[string]setting{}}
	if opts.File != "" {
		l.file(opts.File)
	}
	l.env(opts.Env)
	if opts.Data != "" {
		l.set("varve.data.dir", opts.Data, "--data")
	}
	for _, s := range opts.Sets {
		key, value, found := strings.Cut(s, "=")
		if key = strings.TrimSpace(key); !found || key == "" {
			l.fail(&Error{Origin: "--set " + s, What: "it is not of the form key=value"})
			continue
		}
		l.set(key, value, "--set")
	}
	c := &Config{given: map[string]setting{}, hasFile: opts.File != ""}
	l.parse(c)
	if len(l.errs) == 0 {
		l.errs = append(l.errs, c.resolve()...)
	}
	if len(l.errs) > 0 {
		return nil, nil, errors.Join(l.errs...)
	}
	return c, append(l.warnings(), c.warnings...), nil
}

type loader struct {
	given map[string]setting
	inert []string
	warn  []Warning
	errs  []error
}

func (l *loader) fail(err error) { l.errs = append(l.errs, err) }

func (l *loader) set(key, value, origin string) {
	l.given[key] = setting{raw: strings.TrimSpace(value), origin: origin}
}

func (l *loader) file(path string) {
	base := filepath.Base(path)
	data, err := readBounded(path)
	if err != nil {
		l.fail(&Error{Origin: "--config " + path, What: err.Error(), Fix: "name a readable file of at most 1 MiB"})
		return
	}
	props, err := parseProperties(data)
	if err != nil {
		l.fail(&Error{Origin: base, What: err.Error()})
		return
	}
	for _, p := range props {
		if old, ok := l.given[p.Key]; ok {
			l.warn = append(l.warn, Warning{p.Key, fmt.Sprintf("set again at %s:%d; what %s says is not used", base, p.Line, old.origin)})
		}
		l.set(p.Key, p.Value, fmt.Sprintf("%s:%d", base, p.Line))
	}
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxPropertiesBytes+1))
}

// parse moves what was given into c, each value parsed, and collects what is unknown, wrong or without effect.
func (l *loader) parse(c *Config) {
	names := make([]string, 0, len(l.given))
	for name := range l.given {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		s := l.given[name]
		key, known := brokerTable[name]
		switch {
		case !known && hasOpenPrefix(name):
			l.inert = append(l.inert, name)
		case !known && retired[name] != "":
			l.warn = append(l.warn, Warning{name, "has no effect: " + retired[name]})
		case !known:
			l.fail(&Error{Key: name, Origin: s.origin, What: "unknown key", Fix: suggest(name)})
		default:
			v, err := key.Parse(s.raw)
			if err != nil {
				l.fail(&Error{Key: name, Value: shown(key, s.raw), Origin: s.origin, What: err.Error()})
				continue
			}
			if !key.Acts {
				l.inert = append(l.inert, name)
			}
			c.given[name] = setting{s.raw, v, s.origin}
		}
	}
}

func shown(k Key, raw string) string {
	if k.Sensitive() {
		return ""
	}
	return raw
}

func (l *loader) warnings() []Warning {
	if len(l.inert) > 0 {
		l.warn = append(l.warn, Warning{Text: "accepted, but without effect in varve: " + strings.Join(l.inert, ", ")})
	}
	return l.warn
}
