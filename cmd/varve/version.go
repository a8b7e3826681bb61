package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker for releases (-X main.version=...).
var version = ""

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a tree with uncommitted changes
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func buildVersion() versionInfo {
	v := versionInfo{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
		if v.Version == "" && info.Main.Version != "" {
			v.Version = info.Main.Version
		}
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	return v
}

func versionCommand() *command {
	return &command{
		name:     "version",
		args:     "[--format text|json]",
		summary:  "Print the version of this binary.",
		examples: []string{"varve version", "varve version --format json"},
		run: func(c *call) int {
			format := c.format()
			if _, code, done := c.parse(0, 0); done {
				return code
			}
			if c.badFormat(*format) {
				return c.wrong("--format is text or json")
			}
			v := buildVersion()
			if *format == "json" {
				return c.printJSON(v)
			}
			revision := ""
			if v.Revision != "" {
				revision = " revision " + v.Revision
				if v.Modified {
					revision += " (modified)"
				}
			}
			fmt.Fprintf(c.stdout, "varve %s%s %s %s/%s\n", v.Version, revision, v.Go, v.OS, v.Arch)
			return exitOK
		},
	}
}
