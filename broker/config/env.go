package config

import "strings"

const envPrefix = "VARVE_"

// envIgnored begin variables that are not ours to read: VARVE_TOOLS_DIR and VARVE_TEST_* steer the project's own tests,
// the others are what Kubernetes sets for a Service that is called varve.
var envIgnored = []string{"VARVE_TOOLS_DIR", "VARVE_TEST_", "VARVE_SERVICE_", "VARVE_PORT"}

// EnvName returns the environment variable that sets a broker key: capitals, dots as underscores, a leading "varve." dropped.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(key, "varve."), ".", "_"))
}

func (l *loader) env(environ []string) {
	byEnv := make(map[string]string, len(brokerTable))
	for name := range brokerTable {
		byEnv[EnvName(name)] = name
	}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || ignoredEnv(name) {
			continue
		}
		key, known := byEnv[name]
		if dotted := dotted(name); !known && (hasOpenPrefix(dotted) || retired[dotted] != "") {
			key, known = dotted, true
		}
		if !known {
			l.fail(&Error{Key: name, Origin: "environment", What: "unknown variable", Fix: suggestEnv(name)})
			continue
		}
		l.set(key, value, name)
	}
}

func ignoredEnv(name string) bool {
	for _, p := range envIgnored {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

func dotted(env string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(env, envPrefix)), "_", ".")
}

func suggestEnv(name string) string {
	if k, ok := topicTable[dotted(name)]; ok {
		if synonyms := topicSynonyms[k.Name]; len(synonyms) > 0 {
			return "it is a topic's key; the default for all topics is " + EnvName(synonyms[0].key)
		}
	}
	var names []string
	for _, key := range brokerNames() {
		names = append(names, EnvName(key))
	}
	if near, ok := Nearest(name, names); ok {
		return "did you mean " + near + "?"
	}
	return "the keys are listed in docs/configuration.md"
}
