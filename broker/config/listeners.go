package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Listener is one entry of listeners or advertised.listeners.
type Listener struct {
	Name     string // in capitals, for example "PLAINTEXT"
	Protocol string // "PLAINTEXT"
	Host     string // "" means all interfaces
	Port     int    // 0 means that the system chooses; whoever binds it puts the port into the advertised one
}

// Addr returns host:port for net.Listen.
func (l Listener) Addr() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

// String returns NAME://host:port.
func (l Listener) String() string { return l.Name + "://" + l.Addr() }

// Voter is one entry of controller.quorum.voters.
type Voter struct {
	ID   int32
	Host string
	Port int
}

// Listeners returns the listeners for clients and brokers; those of the controller are not among them.
func (c *Config) Listeners() []Listener { return c.listeners }

// ControllerListeners returns the listeners that controller.listener.names names.
func (c *Config) ControllerListeners() []Listener { return c.controllers }

// AdvertisedListeners returns what clients are told: one for each of Listeners, in their order.
func (c *Config) AdvertisedListeners() []Listener { return c.advertised }

// Voters returns controller.quorum.voters.
func (c *Config) Voters() []Voter { return c.voters }

const unsupportedProtocol = "varve serves PLAINTEXT; SSL, SASL_PLAINTEXT and SASL_SSL are not supported"

var listenerPattern = regexp.MustCompile(`^([A-Za-z0-9_.-]+)://\[?([-0-9a-zA-Z.:%_]*?)\]?:([0-9]+)$`)

// resolveListeners checks listeners and advertised.listeners as SocketServerConfigs.java and KafkaConfig.scala do.
func (c *Config) resolveListeners(errs *[]error) {
	fail := func(key, what, fix string) { *errs = append(*errs, c.at(key, what, fix)) }
	all := c.parseListeners("listeners", errs)
	adv := c.parseListeners("advertised.listeners", errs)
	if len(*errs) > 0 {
		return
	}
	controllers := upper(c.List("controller.listener.names"))
	for _, name := range controllers {
		if !slices.ContainsFunc(all, named(name)) {
			fail("controller.listener.names", name+" is not among the listeners", "add "+name+"://host:port to listeners")
		}
	}
	ports := map[string]bool{}
	for _, l := range all {
		if l.Port != 0 && ports[l.Addr()] {
			fail("listeners", fmt.Sprintf("%s is used twice", l.Addr()), "give each listener a port of its own")
		}
		ports[l.Addr()] = true
		if slices.Contains(controllers, l.Name) {
			c.controllers = append(c.controllers, l)
		} else {
			c.listeners = append(c.listeners, l)
		}
	}
	if len(c.listeners) == 0 {
		fail("listeners", "there is no listener for clients", "add PLAINTEXT://127.0.0.1:9092")
	}
	for _, a := range adv {
		if !slices.ContainsFunc(all, named(a.Name)) {
			fail("advertised.listeners", a.Name+" is not among the listeners", "add "+a.Name+"://host:port to listeners")
		}
	}
	if name := strings.ToUpper(c.String("inter.broker.listener.name")); name != "" && !slices.ContainsFunc(c.listeners, named(name)) {
		fail("inter.broker.listener.name", name+" is not among the listeners for brokers", "name one of them")
	}
	for i := range c.controllers {
		c.secure(&c.controllers[i], adv, errs)
	}
	for i := range c.listeners {
		c.secure(&c.listeners[i], adv, errs)
		c.advertise(c.listeners[i], adv, errs)
	}
	c.checkHTTP(errs)
}

func named(name string) func(Listener) bool {
	return func(l Listener) bool { return l.Name == name }
}

func upper(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.ToUpper(n)
	}
	return out
}

func (c *Config) parseListeners(key string, errs *[]error) (all []Listener) {
	fail := func(what, fix string) { *errs = append(*errs, c.at(key, what, fix)) }
	for _, item := range c.List(key) {
		m := listenerPattern.FindStringSubmatch(item)
		if m == nil {
			fail(strconv.Quote(item)+" is not of the form NAME://host:port", "write for example PLAINTEXT://127.0.0.1:9092")
			continue
		}
		l := Listener{Name: strings.ToUpper(m[1]), Host: m[2]}
		port, err := strconv.ParseUint(m[3], 10, 16)
		if err != nil {
			fail("port "+m[3]+" is not between 0 and 65535", "")
			continue
		}
		l.Port = int(port)
		if slices.ContainsFunc(all, named(l.Name)) {
			fail("listener name "+l.Name+" stands in it twice", "give each a name of its own, and its protocol in listener.security.protocol.map")
			continue
		}
		l.Protocol, err = c.protocolOf(l.Name)
		if err != nil {
			*errs = append(*errs, err)
			continue
		}
		if l.Protocol != "PLAINTEXT" {
			fail(l.Name+" asks for "+l.Protocol+"; "+unsupportedProtocol, "use a PLAINTEXT listener on a network of your own")
		}
		all = append(all, l)
	}
	return all
}

var protocols = []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}

// protocolOf looks a listener name up in listener.security.protocol.map. As in Apache Kafka, a controller listener is
// PLAINTEXT when the map is not set.
func (c *Config) protocolOf(name string) (string, error) {
	const key = "listener.security.protocol.map"
	for _, item := range splitList(c.String(key)) {
		n, p, found := strings.Cut(item, ":")
		p = strings.ToUpper(strings.TrimSpace(p))
		if !found || !slices.Contains(protocols, p) {
			return "", c.at(key, strconv.Quote(item)+" is not of the form NAME:PROTOCOL", "protocols: "+strings.Join(protocols, ", "))
		}
		if strings.EqualFold(strings.TrimSpace(n), name) {
			return p, nil
		}
	}
	if !c.isGiven(key) && slices.Contains(upper(c.List("controller.listener.names")), name) {
		return "PLAINTEXT", nil
	}
	return "", c.at(key, "it has no protocol for listener "+name, "add "+name+":PLAINTEXT")
}

// secure keeps a listener without security on loopback. One with no host, as in Apache Kafka's own sample file, is bound
// to the loopback address with a warning, unless other machines were told to connect to it.
func (c *Config) secure(l *Listener, adv []Listener, errs *[]error) {
	if c.Bool("varve.insecure.listeners") || loopback(l.Host) {
		return
	}
	told := slices.ContainsFunc(adv, func(a Listener) bool { return a.Name == l.Name && !loopback(a.Host) })
	if l.Host == "" && !told {
		l.Host = "127.0.0.1"
		c.warnings = append(c.warnings, Warning{"listeners", fmt.Sprintf("%s://:%d names no host and has no security: it is open on 127.0.0.1 only; set varve.insecure.listeners=true to open it on all interfaces", l.Name, l.Port)})
		return
	}
	*errs = append(*errs, c.at("listeners", fmt.Sprintf("%s has no security and other machines could reach it", l), "listen on 127.0.0.1, or set varve.insecure.listeners=true if the network is safe"))
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// advertise appends what clients are told about one listener.
func (c *Config) advertise(l Listener, adv []Listener, errs *[]error) {
	a := l
	if i := slices.IndexFunc(adv, named(l.Name)); i >= 0 {
		a = adv[i]
	}
	if a.Host == "" {
		a.Host = advertisedHost()
	}
	if addr, err := netip.ParseAddr(a.Host); err == nil && addr.IsUnspecified() {
		*errs = append(*errs, c.at("advertised.listeners", a.Name+" would tell clients to connect to "+a.Host+", which is no address of this machine", "set advertised.listeners="+a.Name+"://HOST:"+strconv.Itoa(a.Port)+" with a host that clients can reach"))
	}
	c.advertised = append(c.advertised, a)
}

func (c *Config) checkHTTP(errs *[]error) {
	const key = "varve.http.listen"
	addr := c.String(key)
	if addr == "" {
		return
	}
	host, port, err := net.SplitHostPort(addr)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		*errs = append(*errs, c.at(key, "it is not of the form host:port", "write for example 127.0.0.1:9644, or nothing for no HTTP"))
		return
	}
	if !loopback(host) && !c.Bool("varve.insecure.listeners") {
		*errs = append(*errs, c.at(key, "it has no security and other machines could reach it", "listen on 127.0.0.1, or set varve.insecure.listeners=true if the network is safe"))
	}
}

func (c *Config) resolveVoters(errs *[]error) {
	const key = "controller.quorum.voters"
	for _, item := range c.List(key) {
		id, addr, found := strings.Cut(item, "@")
		n, err := strconv.ParseUint(id, 10, 31)
		host, port, aerr := net.SplitHostPort(addr)
		p, perr := strconv.ParseUint(port, 10, 16)
		if !found || err != nil || aerr != nil || perr != nil || host == "" {
			*errs = append(*errs, c.at(key, strconv.Quote(item)+" is not of the form id@host:port", ""))
			return
		}
		c.voters = append(c.voters, Voter{ID: int32(n), Host: host, Port: int(p)})
	}
	if len(c.voters) > 1 {
		*errs = append(*errs, c.at(key, "varve runs as one node and does not join others", "name this node alone, or remove the key"))
		return
	}
	if len(c.voters) > 0 && !slices.ContainsFunc(c.voters, func(v Voter) bool { return v.ID == c.nodeID }) {
		*errs = append(*errs, c.at(key, fmt.Sprintf("this node, %d, is not among them", c.nodeID), "add it, or correct node.id"))
	}
}
