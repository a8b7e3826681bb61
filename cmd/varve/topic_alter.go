package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func topicAlterCommand() *command {
	return &command{
		name: "alter", args: "NAME [--config KEY=VALUE]... [--delete-config KEY]... [--partitions N] [--dry-run] [--format text|json]", run: topicAlter,
		summary: "Change configurations of a topic, or its number of partitions, which can only grow. " +
			"A configuration that is deleted has the broker's default again. With keys hashed to partitions, a larger number sends the same key elsewhere from then on.",
		examples: []string{
			"varve topic alter hello --config retention.ms=604800000 --delete-config max.message.bytes",
			"varve topic alter hello --partitions 6 --dry-run",
		},
	}
}

// alteration is what is to change.
type alteration struct {
	Topic      string            `json:"topic"`
	DryRun     bool              `json:"dryRun"`
	Set        map[string]string `json:"set"`
	Deleted    []string          `json:"deleted"`
	Partitions int               `json:"partitions,omitempty"` // new number
}

func topicAlter(c *call) int {
	client := addClientFlags(c.flags)
	partitions := c.flags.Int("partitions", 0, "new number of partitions `N`")
	dryRun := c.flags.Bool("dry-run", false, "only ask the broker whether it would be allowed")
	format := c.format()
	var sets, deletes repeated
	c.flags.Var(&sets, "config", "set a topic configuration, as `KEY=VALUE`; may be repeated")
	c.flags.Var(&sets, "add-config", "`KEY=VALUE`, Kafka's name for --config")
	c.flags.Var(&deletes, "delete-config", "give the configuration `KEY` its default again; may be repeated")
	args, code, done := c.parse(1, 1)
	if done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	a := alteration{Topic: args[0], DryRun: *dryRun, Set: map[string]string{}, Deleted: []string{}, Partitions: *partitions}
	if wrong := a.resolve(sets, deletes); wrong != "" {
		return c.wrong("%s", wrong)
	}
	return c.withAdmin(client, func(ctx context.Context, admin *kadm.Client) int {
		details, code := c.knownTopics(ctx, admin, a.Topic)
		if code != exitOK {
			return code
		}
		if now := len(details[a.Topic].Partitions); a.Partitions > 0 && a.Partitions <= now {
			return c.failed("%s has %d partitions: the number can only grow", a.Topic, now)
		}
		if err := a.apply(ctx, admin); err != nil {
			return c.failed("%s: %v", a.Topic, err)
		}
		if *format == "json" {
			return c.printJSON(a)
		}
		a.print(c)
		return exitOK
	})
}

// resolve returns a text when something is wrong.
func (a *alteration) resolve(sets, deletes repeated) string {
	for _, kv := range sets {
		key, value, found := strings.Cut(kv, "=")
		if !found {
			return "--config " + kv + " is not of the form KEY=VALUE"
		}
		a.Set[key] = value
	}
	for _, key := range deletes {
		if _, both := a.Set[key]; both || strings.Contains(key, "=") {
			return "--delete-config " + key + " takes a KEY that is not set at the same time"
		}
		a.Deleted = append(a.Deleted, key)
	}
	switch {
	case a.Partitions < 0 || a.Partitions > 1<<31-1:
		return "--partitions is at least 1"
	case len(a.Set)+len(a.Deleted)+a.Partitions == 0:
		return "nothing is to change: --config, --delete-config or --partitions"
	}
	return ""
}

// apply asks first whether both kinds of change would be allowed, so that not one of them is done alone.
func (a *alteration) apply(ctx context.Context, admin *kadm.Client) error {
	var configs []kadm.AlterConfig
	for _, key := range sortedKeys(a.Set) {
		value := a.Set[key]
		configs = append(configs, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value})
	}
	for _, key := range a.Deleted {
		configs = append(configs, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key})
	}
	alter := []func(context.Context, []kadm.AlterConfig, ...string) (kadm.AlterConfigsResponses, error){admin.ValidateAlterTopicConfigs, admin.AlterTopicConfigs}
	grow := []func(context.Context, int, ...string) (kadm.CreatePartitionsResponses, error){admin.ValidateUpdatePartitions, admin.UpdatePartitions}
	for step := range 2 {
		if step == 1 && a.DryRun {
			return nil
		}
		if len(configs) > 0 {
			responses, err := alter[step](ctx, configs, a.Topic)
			if err != nil {
				return unsupported(err)
			}
			if r, err := responses.On(a.Topic, nil); err != nil || r.Err != nil {
				return errors.New(explain(errors.Join(err, r.Err), r.ErrMessage))
			}
		}
		if a.Partitions > 0 {
			responses, err := grow[step](ctx, a.Partitions, a.Topic)
			if err != nil {
				return unsupported(err)
			}
			if r, err := responses.On(a.Topic, nil); err != nil || r.Err != nil {
				return errors.New(explain(errors.Join(err, r.Err), r.ErrMessage))
			}
		}
	}
	return nil
}

func unsupported(err error) error {
	if errors.Is(err, kerr.UnsupportedVersion) {
		return fmt.Errorf("the broker does not know this request: is it older than this tool? (%w)", err)
	}
	return errors.New(explain(err, ""))
}

func (a *alteration) print(c *call) {
	done, deleted := "set", "deleted"
	if a.DryRun {
		done, deleted = "would set", "would delete"
	}
	for _, key := range sortedKeys(a.Set) {
		fmt.Fprintf(c.stdout, "%s: %s %s=%s\n", a.Topic, done, key, a.Set[key])
	}
	for _, key := range a.Deleted {
		fmt.Fprintf(c.stdout, "%s: %s %s\n", a.Topic, deleted, key)
	}
	if a.Partitions > 0 {
		fmt.Fprintf(c.stdout, "%s: %s the number of partitions to %d\n", a.Topic, done, a.Partitions)
	}
}
