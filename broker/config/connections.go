package config

import (
	"net/netip"
	"strconv"
	"strings"
)

// ConnectionsPerIP are the exceptions from max.connections.per.ip, by address.
func (c *Config) ConnectionsPerIP() map[string]int {
	out, _ := connectionsPerIP(c.String("max.connections.per.ip.overrides")) // its check let it through
	return out
}

// connectionsPerIP reads address:number, separated by commas (SocketServer.scala, ConnectionQuotas). Names, which Apache Kafka
// resolves once when it starts, are not taken.
func connectionsPerIP(list string) (map[string]int, bool) {
	out := map[string]int{}
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		at := strings.LastIndexByte(item, ':')
		if at < 0 {
			return nil, false
		}
		ip, err := netip.ParseAddr(strings.Trim(strings.TrimSpace(item[:at]), "[]"))
		n, err2 := strconv.ParseInt(strings.TrimSpace(item[at+1:]), 10, 32)
		if err != nil || err2 != nil || n < 0 {
			return nil, false
		}
		out[ip.Unmap().String()] = int(n)
	}
	return out, true
}

// addressBounds is the rule of max.connections.per.ip.overrides.
func addressBounds() Check {
	return Check{Allowed: "address:number, separated by commas", ok: func(v any) bool {
		s, ok := v.(string)
		if ok {
			_, ok = connectionsPerIP(s)
		}
		return ok
	}}
}

// checkConnections refuses to shut out every address (KafkaConfig.validateValues): nobody could take that back through Kafka.
func (c *Config) checkConnections(errs *[]error) {
	const key = "max.connections.per.ip"
	if c.Int(key) == 0 && len(c.ConnectionsPerIP()) == 0 {
		*errs = append(*errs, c.at(key, "no address could connect", "name those that may in max.connections.per.ip.overrides"))
	}
}
