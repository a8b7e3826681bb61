package config

import (
	"strings"
)

// Nearest returns the candidate with the smallest edit distance to word, if it is near enough to be what was meant.
// Equal distances go to the earlier candidate.
func Nearest(word string, candidates []string) (string, bool) {
	best, bestDistance := "", 1+max(2, len(word)/3)
	for _, c := range candidates {
		if d := editDistance(word, c, bestDistance); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best, best != ""
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours; it may stop early at limit.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+b2i(a[i-1] != b[j-1]))
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// suggest says what to write instead of an unknown broker key.
func suggest(key string) string {
	if why, ok := retired[key]; ok {
		return why
	}
	if k, ok := topicTable[key]; ok {
		if synonyms := topicSynonyms[k.Name]; len(synonyms) > 0 {
			return "it is a topic's key; the default for all topics is " + synonyms[0].key
		}
		return "it is a topic's key; set it on the topic"
	}
	if near, ok := Nearest(key, brokerNames()); ok {
		return "did you mean " + near + "?"
	}
	return "the keys are listed in docs/configuration.md"
}

func brokerNames() []string {
	var names []string
	for _, k := range Keys() {
		if k.Scope == ScopeBroker && !k.Internal {
			names = append(names, k.Name)
		}
	}
	return names
}

// retired are keys of older Apache Kafka that version 4 no longer has. Kafka ignores them; so does varve, with a warning.
var retired = map[string]string{
	"broker.id.generation.enable":             "Apache Kafka 4 has it no more; set node.id",
	"control.plane.listener.name":             "Apache Kafka 4 has it no more",
	"delegation.token.master.key":             "Apache Kafka 4 has it no more; it was renamed delegation.token.secret.key",
	"inter.broker.protocol.version":           "Apache Kafka 4 has it no more",
	"log.message.downconversion.enable":       "Apache Kafka 4 has it no more",
	"log.message.format.version":              "Apache Kafka 4 has it no more",
	"log.message.timestamp.difference.max.ms": "Apache Kafka 4 has it no more; it became log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms",
	"offsets.commit.required.acks":            "Apache Kafka 4 has it no more",
	"reserved.broker.max.id":                  "Apache Kafka 4 has it no more",
	"group.coordinator.new.enable":            "Apache Kafka 4 has it no more",
	"zookeeper.clientCnxnSocket":              "varve has a quorum of its own and no ZooKeeper",
	"zookeeper.connect":                       "varve has a quorum of its own and no ZooKeeper",
	"zookeeper.connection.timeout.ms":         "varve has a quorum of its own and no ZooKeeper",
	"zookeeper.max.in.flight.requests":        "varve has a quorum of its own and no ZooKeeper",
	"zookeeper.metadata.migration.enable":     "varve has a quorum of its own and no ZooKeeper",
	"zookeeper.session.timeout.ms":            "varve has a quorum of its own and no ZooKeeper",
	"zookeeper.set.acl":                       "varve has a quorum of its own and no ZooKeeper",
}

// openPrefixes begin keys whose rest is free: settings of plugins and of single listeners.
var openPrefixes = []string{"listener.name.", "config.providers.", "rsm.config.", "rlmm.config."}

func hasOpenPrefix(key string) bool {
	for _, p := range openPrefixes {
		if strings.HasPrefix(key, p) && len(key) > len(p) {
			return true
		}
	}
	return false
}
