package localstack

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"varve/broker/config"
	"varve/tests/node"
	"varve/tiering/objstore"
)

// compose is the part of the compose specification that the file uses; anything else is an error.
type compose struct {
	Name        string               `yaml:"name"`
	Credentials map[string]string    `yaml:"x-credentials"`
	Services    map[string]service   `yaml:"services"`
	Volumes     map[string]*struct{} `yaml:"volumes"`
}

type service struct {
	Image       string               `yaml:"image"`
	Build       build                `yaml:"build"`
	Command     []string             `yaml:"command"`
	Entrypoint  []string             `yaml:"entrypoint"`
	Environment map[string]string    `yaml:"environment"`
	Ports       []string             `yaml:"ports"`
	Volumes     []string             `yaml:"volumes"`
	Restart     string               `yaml:"restart"`
	Healthcheck *healthcheck         `yaml:"healthcheck"`
	DependsOn   map[string]condition `yaml:"depends_on"`
	Grace       time.Duration        `yaml:"stop_grace_period"`
}

type build struct {
	Context    string `yaml:"context"`
	Dockerfile string `yaml:"dockerfile"`
}

type healthcheck struct {
	Test        []string      `yaml:"test"`
	Interval    time.Duration `yaml:"interval"`
	Timeout     time.Duration `yaml:"timeout"`
	Retries     int           `yaml:"retries"`
	StartPeriod time.Duration `yaml:"start_period"`
}

type condition struct {
	Condition string `yaml:"condition"`
}

func folder(name ...string) string {
	return filepath.Join(append([]string{node.Root(), "localstack"}, name...)...)
}

func readCompose(t *testing.T) compose {
	t.Helper()
	raw, err := os.ReadFile(folder("compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c compose
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

// pinned is an image with a tag or digest that names one version.
var pinned = regexp.MustCompile(`^[a-z0-9./-]+(:[A-Za-z0-9._-]*[0-9][A-Za-z0-9._-]*|@sha256:[0-9a-f]{64})$`)

// TestComposeIsWellFormed: every service is pinned or built here, and is reachable from this machine only; what is
// referred to is there.
func TestComposeIsWellFormed(t *testing.T) {
	c := readCompose(t)
	if names := sorted(c.Services); !slices.Equal(names, []string{"bucket", "s3", "varve"}) {
		t.Fatalf("services: %v", names)
	}
	for name, s := range c.Services {
		if (s.Image == "") == (s.Build.Dockerfile == "") {
			t.Errorf("%s has an image or is built, not both", name)
		}
		if s.Image != "" && !pinned.MatchString(s.Image) {
			t.Errorf("%s: the image %q is not pinned", name, s.Image)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s: port %s is open to other machines", name, p)
			}
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, ok := c.Volumes[volume]; !ok {
				t.Errorf("%s: there is no volume %s", name, volume)
			}
		}
		for on, cond := range s.DependsOn {
			other, ok := c.Services[on]
			switch {
			case !ok:
				t.Errorf("%s waits for %s, which is not there", name, on)
			case cond.Condition == "service_healthy" && other.Healthcheck == nil:
				t.Errorf("%s waits for the health of %s, which has no check", name, on)
			case cond.Condition == "service_completed_successfully" && other.Restart != "no":
				t.Errorf("%s waits for the end of %s, which is started again", name, on)
			case cond.Condition != "service_healthy" && cond.Condition != "service_completed_successfully":
				t.Errorf("%s waits for %s under %q", name, on, cond.Condition)
			}
		}
		if h := s.Healthcheck; h != nil && (len(h.Test) < 2 || h.Test[0] != "CMD" || h.Interval <= 0 || h.Timeout <= 0 || h.Retries < 1) {
			t.Errorf("%s: %+v", name, *h)
		}
	}
	for _, name := range []string{"s3", "varve"} {
		if c.Services[name].Healthcheck == nil {
			t.Errorf("%s has no health check", name)
		}
	}
}

// TestComposeFitsTogether: the node's settings are ones that varve takes, and the store, the bucket and the credentials that
// it is given are those that the other services make.
func TestComposeFitsTogether(t *testing.T) {
	c := readCompose(t)
	s3, bucket, varve := c.Services["s3"], c.Services["bucket"], c.Services["varve"]
	user, password := s3.Environment["MINIO_ROOT_USER"], s3.Environment["MINIO_ROOT_PASSWORD"]
	if len(user) < 3 || len(password) < 8 || varve.Environment["AWS_ACCESS_KEY_ID"] != user || varve.Environment["AWS_SECRET_ACCESS_KEY"] != password {
		t.Errorf("credentials differ: %v %v", s3.Environment, varve.Environment)
	}
	var sets []string
	for _, arg := range varve.Command {
		if set, ok := strings.CutPrefix(arg, "--set="); ok {
			sets = append(sets, set)
		}
	}
	cfg, warnings, err := config.Load(config.LoadOptions{Sets: sets, Data: "/data"})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	tier, err := url.Parse(cfg.String("varve.tier.url"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.ParseURL(tier.String()); err != nil {
		t.Fatal(err)
	}
	endpoint, err := url.Parse(tier.Query().Get("endpoint"))
	if err != nil || endpoint.Hostname() != "s3" || !slices.Contains(s3.Command, ":"+endpoint.Port()) {
		t.Errorf("the tier is at %v, the server is %v; %v", endpoint, s3.Command, err)
	}
	alias, made, _ := strings.Cut(bucket.Entrypoint[len(bucket.Entrypoint)-1], "/")
	want := "http://" + user + ":" + password + "@" + endpoint.Host
	if made != tier.Host || bucket.Environment["MC_HOST_"+alias] != want {
		t.Errorf("bucket %s by %v, the tier is in %s", made, bucket.Environment, tier.Host)
	}
	for _, l := range cfg.AdvertisedListeners() {
		if l.Host == "127.0.0.1" && !slices.ContainsFunc(varve.Ports, func(p string) bool { return strings.HasPrefix(p, l.Addr()+":") }) {
			t.Errorf("%s is advertised, but the published ports are %v", l.Addr(), varve.Ports)
		}
		if l.Host != "127.0.0.1" && l.Host != "varve" {
			t.Errorf("%s is advertised: other containers know the node as varve", l.Addr())
		}
	}
	if varve.Grace <= 30*time.Second {
		t.Errorf("%s to stop: a node may drain for 30s", varve.Grace)
	}
}

// TestDockerfile: base images are pinned, Go is as new as go.mod wants, and the build sees every folder that the binary is
// made of.
func TestDockerfile(t *testing.T) {
	c := readCompose(t)
	b := c.Services["varve"].Build
	if filepath.Clean(folder(b.Context)) != node.Root() || filepath.Join(node.Root(), b.Dockerfile) != folder("Dockerfile") {
		t.Errorf("%+v", b)
	}
	raw, err := os.ReadFile(folder("Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	stages := map[string]bool{"scratch": true}
	for _, m := range regexp.MustCompile(`(?m)^FROM (\S+)(?: AS (\S+))?$`).FindAllStringSubmatch(string(raw), -1) {
		if !stages[m[1]] && !pinned.MatchString(m[1]) {
			t.Errorf("FROM %s is not pinned", m[1])
		}
		stages[m[2]] = true
	}
	for _, m := range regexp.MustCompile(`--from=(\S+)`).FindAllStringSubmatch(string(raw), -1) {
		if !stages[m[1]] {
			t.Errorf("there is no stage %s", m[1])
		}
	}
	mod, err := os.ReadFile(filepath.Join(node.Root(), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(mod))[1]
	if !strings.Contains(string(raw), "FROM golang:"+version) {
		t.Errorf("go.mod wants Go %s", version)
	}
	ignore, err := os.ReadFile(folder("Dockerfile.dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/varve")
	list.Dir = node.Root()
	deps, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(deps)) {
		if own, ok := strings.CutPrefix(path, "varve/"); ok {
			top, _, _ := strings.Cut(own, "/")
			if !strings.Contains(string(ignore), "\n!"+top+"\n") {
				t.Errorf("the build does not see %s, which has %s", top, path)
			}
		}
	}
}

func sorted[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
