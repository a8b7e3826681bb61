package config

import (
	"fmt"
	"strings"
)

const pageHead = `# Configuration

This page is written by ` + "`varve config --markdown`" + ` from the table that the broker itself reads.

Keys have the names of Apache Kafka 4.4 and mean the same; what Kafka has no name for begins with ` + "`varve.`" + `. They are set, the
strongest first, by ` + "`--set key=value`" + `, by the environment (` + "`VARVE_`" + ` and the key in capitals with dots as underscores, a
leading ` + "`varve.`" + ` left out: ` + "`VARVE_LOG_SEGMENT_BYTES`, `VARVE_TIER_URL`" + `), or in the file given with ` + "`--config`" + `, which has the
format of Kafka's server.properties. Topics have keys of their own, set at their creation.

A key that is unknown, and a value that is not allowed, stops the broker at its start with a message that says what to
write. Keys marked *no effect* are accepted, so that a file written for Apache Kafka works, and named in one warning.
Keys that begin with ` + "`listener.name.`, `rsm.config.`, `rlmm.config.` or `config.providers.`" + ` are accepted in the same way.
Variables whose names begin with ` + "`VARVE_TOOLS_DIR`, `VARVE_TEST_`, `VARVE_SERVICE_` or `VARVE_PORT`" + ` are not read.

Listeners are PLAINTEXT. One that other machines could reach needs ` + "`varve.insecure.listeners=true`" + `.
`

// Markdown returns the reference page, docs/configuration.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, s := range sections() {
		fmt.Fprintf(&b, "\n## %s\n\n| key | type | default | allowed | |\n|---|---|---|---|---|\n", s.title)
		for _, k := range s.keys {
			if !k.Internal {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Name, k.Type, defaultText(k), cell(k.Check.Allowed), notes(k))
			}
		}
	}
	return b.String()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func defaultText(k Key) string {
	switch {
	case k.Null:
		return "none"
	case k.Default == "":
		return "empty"
	case k.Default == "9223372036854775807" || k.Default == "2147483647" || strings.Contains(k.Default, "E308"):
		return "no bound"
	}
	return "`" + k.Default + "`"
}

func notes(k Key) string {
	text := k.Doc
	if k.Scope == ScopeTopic && len(topicSynonyms[k.Name]) > 0 {
		var names []string
		for _, s := range topicSynonyms[k.Name] {
			if s.key != k.Name {
				names = append(names, "`"+s.key+"`")
			}
		}
		if len(names) > 0 {
			text += " Default for all topics: " + strings.Join(names, ", ") + "."
		}
	}
	if !k.Acts {
		text += " *No effect.*"
	}
	return cell(text)
}
