package main

import (
	"errors"
	"fmt"
	"io"

	"varve/broker/config"
)

func configCommand() *command {
	return &command{
		name: "config",
		args: "[--config FILE] [--data DIR] [--set KEY=VALUE]... [--all | --markdown]",
		summary: "Show the configuration that a server would start with, and where each value comes from. Nothing is started. " +
			"Without --all only what somebody set is shown.",
		examples: []string{
			"varve config --config server.properties",
			"VARVE_LOG_SEGMENT_BYTES=4194304 varve config --all --format json",
			"varve config --markdown > docs/configuration.md",
		},
		run: runConfig,
	}
}

// loadFlags are the flags of those commands that read the configuration.
type loadFlags struct {
	file, data *string
	sets       repeated
}

func (c *call) loadFlags() *loadFlags {
	l := &loadFlags{
		file: c.flags.String("config", "", "`FILE` in the format of Kafka's server.properties"),
		data: c.flags.String("data", "", "folder `DIR` for log, metadata, cache and, without another tier, the tier"),
	}
	c.flags.Var(&l.sets, "set", "set one key, as `KEY=VALUE`; stronger than environment and file; may be repeated")
	return l
}

func (c *call) loadConfig(l *loadFlags) (*config.Config, []config.Warning, error) {
	return config.Load(config.LoadOptions{Sets: l.sets, Env: c.env, File: *l.file, Data: *l.data})
}

// printConfigErrors writes one line for each thing that is wrong.
func printConfigErrors(w io.Writer, err error) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		fmt.Fprintf(w, "varve: configuration: %v\n", err)
		return
	}
	for _, e := range joined.Unwrap() {
		fmt.Fprintf(w, "varve: configuration: %v\n", e)
	}
}

type configRow struct {
	Key    string  `json:"key"`
	Value  *string `json:"value"` // null when there is none, or it is secret
	Origin string  `json:"origin"`
	Effect bool    `json:"effect"`
}

func runConfig(c *call) int {
	l := c.loadFlags()
	all := c.flags.Bool("all", false, "show defaults too")
	markdown := c.flags.Bool("markdown", false, "print the reference page of all keys instead")
	format := c.format()
	if _, code, done := c.parse(0, 0); done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	if *markdown {
		fmt.Fprint(c.stdout, config.Markdown())
		return exitOK
	}
	cfg, warnings, err := c.loadConfig(l)
	if err != nil {
		printConfigErrors(c.stderr, err)
		return exitUsage
	}
	for _, w := range warnings {
		fmt.Fprintf(c.stderr, "varve: configuration: warning: %s\n", w)
	}
	rows := []configRow{}
	for _, v := range cfg.Values() {
		if v.Origin == "" && !*all {
			continue
		}
		row := configRow{Key: v.Key.Name, Origin: v.Origin, Effect: v.Key.Acts}
		if row.Origin == "" {
			row.Origin = "default"
		}
		if !v.Null && !v.Key.Sensitive() {
			row.Value = &v.Raw
		}
		rows = append(rows, row)
	}
	if *format == "json" {
		return c.printJSON(rows)
	}
	t := newTable(c.stdout, "KEY", "VALUE", "FROM")
	for _, r := range rows {
		value := "-"
		if r.Value != nil {
			value = *r.Value
		}
		t.row(r.Key, value, r.Origin)
	}
	t.flush()
	return exitOK
}
