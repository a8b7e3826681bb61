package api

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/config"
	"varve/metastore/controller"
	"varve/protocol"
)

// alterConfigTimeout bounds the commit of one resource's change: the requests bring no timeout of their own.
const alterConfigTimeoutMs = 30_000

// resource is what AlterConfigs and IncrementalAlterConfigs change at a time.
type resource struct {
	kind    kmsg.ConfigResourceType
	name    string
	changes []config.Change
	nulls   []string // keys that came without a value although they need one
}

// alterConfigs changes each resource or says why not, in order (ConfigAdminManager.java, ConfigurationControlManager.java).
// replace leaves nothing of what was there before. A resource is changed wholly or not at all.
func (d *Dispatcher) alterConfigs(ctx context.Context, resources []resource, replace, validateOnly bool) []error {
	type named struct {
		kind kmsg.ConfigResourceType
		name string
	}
	times := map[named]int{}
	for i := range resources {
		times[named{resources[i].kind, resources[i].name}]++
	}
	errs := make([]error, len(resources))
	brokers := false
	for i := range resources {
		r := &resources[i]
		if times[named{r.kind, r.name}] > 1 {
			errs[i] = protocol.Errorf(protocol.InvalidRequest, "Each resource must appear at most once.")
			continue
		}
		change, err := d.configChange(r, replace)
		if err == nil {
			err = d.alterConfig(ctx, change, validateOnly)
		}
		errs[i] = err
		brokers = brokers || err == nil && r.kind == kmsg.ConfigResourceTypeBroker
	}
	if brokers && !validateOnly && d.o.Reconfigure != nil {
		d.o.Reconfigure()
	}
	return errs
}

func (d *Dispatcher) alterConfig(ctx context.Context, change controller.ConfigChange, validateOnly bool) error {
	ctx, cancel := timeout(call{ctx: ctx}, alterConfigTimeoutMs)
	defer cancel()
	return d.o.Controller.AlterConfigs(ctx, change, validateOnly)
}

// configChange checks what can be said of a resource without the values that it has now.
func (d *Dispatcher) configChange(r *resource, replace bool) (change controller.ConfigChange, err error) {
	if _, twice := once(r.changes, func(c *config.Change) string { return c.Name }); len(twice) > 0 {
		return change, protocol.Errorf(protocol.InvalidRequest, "Error due to duplicate config keys")
	}
	if len(r.nulls) > 0 {
		return change, protocol.Errorf(protocol.InvalidRequest, "Null value not supported for : %s", strings.Join(r.nulls, ", "))
	}
	for _, c := range r.changes {
		if c.Op < config.OpSet || c.Op > config.OpSubtract {
			return change, protocol.Errorf(protocol.InvalidRequest, "Unknown operations type %d", int8(c.Op))
		}
	}
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		if r.name == "" {
			return change, protocol.Errorf(protocol.InvalidRequest, "Default topic resources are not allowed.")
		}
		if err := checkTopicName(r.name); err != nil {
			return change, err
		}
		change.Topic = r.name
		change.Edit = func(old map[string]string) (map[string]string, error) {
			return d.o.Config.AlterTopic(old, r.changes, replace)
		}
	case kmsg.ConfigResourceTypeBroker:
		change.Broker = -1
		if r.name != "" {
			if err := d.isThisNode(r.name); err != nil {
				return change, err
			}
			change.Broker = d.o.NodeID
		}
		change.Edit = func(old map[string]string) (map[string]string, error) {
			return d.o.Config.AlterBroker(old, r.changes, replace, r.name != "")
		}
	default:
		return change, protocol.Errorf(protocol.InvalidRequest, "Unknown resource type %d", int8(r.kind))
	}
	return change, nil
}
