package objstore

import (
	"errors"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]URL{
		"dir:///var/lib/varve/tier":  {Scheme: "dir", Path: "/var/lib/varve/tier"},
		"dir:///a//b/../c/":          {Scheme: "dir", Path: "/a/c"},
		"dir:/a":                     {Scheme: "dir", Path: "/a"},
		"dir:///with%20space":        {Scheme: "dir", Path: "/with space"},
		"mem:":                       {Scheme: "mem"},
		"s3://bucket":                {Scheme: "s3", Bucket: "bucket"},
		"S3://bucket/a/b/?region=r1": {Scheme: "s3", Bucket: "bucket", Prefix: "a/b", Region: "r1"},
		"s3://b-1.x/p?endpoint=http://127.0.0.1:9000/&path-style=false&storage-class=GLACIER_IR&kms-key-id=arn:aws:kms:eu-west-1:1:key/2": {
			Scheme: "s3", Bucket: "b-1.x", Prefix: "p", Endpoint: "http://127.0.0.1:9000", StorageClass: "GLACIER_IR", KMSKeyID: "arn:aws:kms:eu-west-1:1:key/2",
		},
		"minio://bucket/p?endpoint=https%3A%2F%2Fminio.example": {
			Scheme: "minio", Bucket: "bucket", Prefix: "p", Endpoint: "https://minio.example", PathStyle: true,
		},
		"s3://bucket?path-style=true": {Scheme: "s3", Bucket: "bucket", PathStyle: true},
	} {
		got, err := ParseURL(raw)
		if err != nil || got != want {
			t.Errorf("%s: %+v %v", raw, got, err)
			continue
		}
		if again, err := ParseURL(got.String()); err != nil || again != want {
			t.Errorf("%s -> %s: %+v %v", raw, got, again, err)
		}
	}
}

func TestParseURLNamesTheFix(t *testing.T) {
	for raw, fix := range map[string]string{
		"":                                       "dir:///",
		"/var/lib/tier":                          "dir:///",
		"gs://bucket":                            "s3://bucket/prefix",
		"dir://var/lib":                          "three slashes",
		"dir:tier":                               "three slashes",
		"dir:///":                                "dir:///absolute/path",
		"dir:///a?x=1":                           "remove the ?",
		"dir:///a#b":                             "%23",
		"mem://x":                                "mem:",
		"s3:///prefix":                           "s3://bucket/prefix",
		"s3://Bad_Bucket/":                       "3 to 63",
		"s3://localhost:9000/bucket":             "?endpoint=",
		"s3://bucket/a//b":                       "single slashes",
		"s3://bucket?regoin=x":                   "did you mean region?",
		"s3://bucket?pathstyle=true":             "did you mean path-style?",
		"s3://bucket?frobnicate=1":               "the parameters are endpoint",
		"s3://bucket?region=":                    "region=VALUE",
		"s3://bucket?region=a&region=b":          "region=VALUE",
		"s3://bucket?path-style=maybe":           "path-style=true",
		"s3://bucket?endpoint=localhost:9000":    "endpoint=http://host:port",
		"s3://bucket?endpoint=http://h/path":     "endpoint=http://host:port",
		"s3://bucket?region=%zz":                 "%XX",
		"minio://bucket":                         "add ?endpoint=",
		"s3://AKIAKEY:s3cret@bucket":             "AWS_ACCESS_KEY_ID",
		"s3://bucket?secret-key=s3cret":          "AWS_ACCESS_KEY_ID",
		"s3://bucket?endpoint=http://k:s3cret@h": "AWS_ACCESS_KEY_ID",
		"s3://AKIAKEY:s3cret/bucket":             "s3://bucket/prefix",
	} {
		_, err := ParseURL(raw)
		var bad *URLError
		if !errors.As(err, &bad) || !strings.Contains(bad.Fix, fix) {
			t.Errorf("%q: %v, want the fix %q", raw, err, fix)
			continue
		}
		if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "AKIAKEY") {
			t.Errorf("%q: the error repeats a credential: %v", raw, err)
		}
	}
}

// FuzzParseURL: no panic; what parses has one canonical form; a secret put into the
// user info, a query value or a parameter's name never comes back in an error.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{
		"s3://bucket/prefix?region=R&endpoint=http://h:1&path-style=true&storage-class=C&kms-key-id=K", "dir:///a/b", "mem:",
		"minio://bucket?endpoint=http://h", "s3://u:p@b/x", "s3://bucket?", "dir:///%00", "s3://[::1]/x", "://", "s3://b\x00?&&=",
	} {
		f.Add(s, "hunter2SECRET")
	}
	f.Fuzz(func(t *testing.T, raw, secret string) {
		u, err := ParseURL(raw)
		if err == nil {
			again, err := ParseURL(u.String())
			if err != nil || again != u || again.String() != u.String() {
				t.Fatalf("%q -> %q -> %+v %v", raw, u, again, err)
			}
		} else if bad := (*URLError)(nil); !errors.As(err, &bad) || bad.Fix == "" {
			t.Fatalf("%q: %v is not an error with a fix", raw, err)
		}
		if len(secret) < 8 {
			return
		}
		marked := "Zq7" + secret + "Zq7"
		for _, leaky := range []string{
			"s3://user:" + marked + "@bucket/" + raw, "s3://" + marked + "@bucket", "s3://bucket?region=" + marked, "s3://bucket?" + marked + "=1",
			"s3://bucket?secret=" + marked, "minio://bucket?endpoint=http://u:" + marked + "@h", "s3://bucket?endpoint=" + marked, "s3://k:" + marked + "/b",
		} {
			if _, err := ParseURL(leaky); err != nil && strings.Contains(err.Error(), marked) {
				t.Fatalf("the error repeats the secret: %v", err)
			}
		}
	})
}

// FuzzDirKey: the path of each valid key stays inside the root, no two keys share one,
// and no component is hidden, special or too long for a file system.
func FuzzDirKey(f *testing.F) {
	for _, s := range []string{"a/b", ".tmp/x", "..", "%2E%2E/x", "a.obj/b", "x.obj", "%", "...", ".obj", "a\x7fb", "日本", "a/../b"} {
		f.Add(s, s+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if ValidateKey(a) != nil {
			return
		}
		p := keyPath(a)
		for part := range strings.SplitSeq(p, "/") {
			if part == "" || strings.HasPrefix(part, ".") || len(part) > 255 || strings.ContainsAny(part, "\x00\\") {
				t.Fatalf("key %q has the path %q", a, p)
			}
		}
		var parts []string
		names := strings.Split(p, "/")
		for i, name := range names {
			e, ok := parseEntry(name)
			if !ok || e.isDir == (i == len(names)-1) {
				t.Fatalf("name %q of key %q: %+v %v", name, a, e, ok)
			}
			parts = append(parts, e.part)
		}
		if got := strings.Join(parts, "/"); got != a {
			t.Fatalf("key %q reads back as %q", a, got)
		}
		if ValidateKey(b) == nil && a != b && p == keyPath(b) {
			t.Fatalf("keys %q and %q share %q", a, b, p)
		}
	})
}
