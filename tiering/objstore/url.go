package objstore

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"varve/broker/config"
)

// URL is a parsed tier URL. Keys given to the Store do not get Prefix prepended:
// the owner of the key layout does that.
type URL struct {
	Scheme       string // dir, mem, s3 or minio
	Path         string // dir: absolute folder
	Bucket       string
	Prefix       string // without slashes at its ends, "" for none
	Region       string // "" lets the SDK decide
	Endpoint     string // scheme://host[:port], "" for AWS
	PathStyle    bool   // bucket in the path; default: true exactly when an endpoint is given
	StorageClass string // "" for the bucket's default
	KMSKeyID     string // SSE-KMS key, "" for the bucket's default encryption
}

// Forms of a tier URL, for error texts.
const urlForms = "use dir:///absolute/path, s3://bucket/prefix?region=R (with &endpoint=http://host:port for a server that is not AWS), " +
	"or minio://bucket/prefix?endpoint=http://host:port"

const credentialsFix = "take them out: credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the instance's role"

var (
	bucketName  = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	plainWord   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	kmsKey      = regexp.MustCompile(`^[A-Za-z0-9:/_.-]{1,512}$`)
	queryParams = []string{"endpoint", "kms-key-id", "path-style", "region", "storage-class"}
)

// ParseURL reads a tier URL. A problem is reported as a *URLError, whose text
// names the fix and repeats no user info and no query value.
func ParseURL(raw string) (URL, error) {
	scheme, _, ok := strings.Cut(raw, ":")
	if !ok {
		return URL{}, &URLError{"it has no scheme", urlForms}
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The text of a url.Error repeats the URL, secrets included.
		return URL{}, &URLError{"it is not a well-formed URL", urlForms}
	}
	if u.User != nil {
		return URL{}, &URLError{"it carries credentials", credentialsFix}
	}
	if u.Fragment != "" || strings.HasSuffix(raw, "#") {
		return URL{}, &URLError{"it has a fragment (#...)", "write a # in a path or prefix as %23"}
	}
	switch strings.ToLower(scheme) {
	case "dir":
		return parseDir(u)
	case "mem":
		if u.Opaque != "" || u.Host != "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return URL{}, &URLError{"mem takes nothing behind the colon", "write mem:"}
		}
		return URL{Scheme: "mem"}, nil
	case "s3", "minio":
		return parseBucket(u)
	}
	return URL{}, &URLError{"the scheme is unknown", urlForms}
}

func parseDir(u *url.URL) (URL, error) {
	const fix = "write dir:///absolute/path (three slashes)"
	switch {
	case u.Opaque != "" || u.Host != "":
		return URL{}, &URLError{"the path of dir is not absolute", fix}
	case !strings.HasPrefix(u.Path, "/") || strings.Trim(u.Path, "/") == "":
		return URL{}, &URLError{"dir has no path", fix}
	case u.RawQuery != "" || u.ForceQuery:
		return URL{}, &URLError{"dir takes no parameters", "remove the ? and what follows (write a ? in a path as %3F)"}
	case strings.ContainsRune(u.Path, 0):
		return URL{}, &URLError{"the path holds a NUL byte", fix}
	}
	return URL{Scheme: "dir", Path: cleanPath(u.Path)}, nil
}

// cleanPath removes empty, "." and ".." parts from an absolute path.
func cleanPath(p string) string {
	var parts []string
	for part := range strings.SplitSeq(p, "/") {
		switch part {
		case "", ".":
		case "..":
			parts = parts[:max(0, len(parts)-1)]
		default:
			parts = append(parts, part)
		}
	}
	return "/" + strings.Join(parts, "/")
}

func parseBucket(u *url.URL) (URL, error) {
	out := URL{Scheme: strings.ToLower(u.Scheme), Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	if u.Opaque != "" || u.Host == "" {
		return URL{}, &URLError{"it names no bucket", "write " + out.Scheme + "://bucket/prefix"}
	}
	if !bucketName.MatchString(u.Host) || strings.Contains(u.Host, "..") {
		return URL{}, &URLError{
			"the bucket's name is not valid",
			"a name has 3 to 63 of a-z, 0-9, '-' and '.'; a host and port go into ?endpoint=http://host:port",
		}
	}
	if out.Prefix != "" {
		if ValidateKey(out.Prefix) != nil || len(out.Prefix) > maxPrefixBytes {
			return URL{}, &URLError{
				"the prefix is not valid",
				"use at most " + strconv.Itoa(maxPrefixBytes) + " bytes of printable UTF-8, single slashes, no '.' or '..' parts",
			}
		}
	}
	if err := out.setQuery(u.RawQuery); err != nil {
		return URL{}, err
	}
	if out.Scheme == "minio" && out.Endpoint == "" {
		return URL{}, &URLError{"minio needs an endpoint", "add ?endpoint=http://host:9000 (for AWS use s3://)"}
	}
	return out, nil
}

// maxPrefixBytes leaves room in maxKeyBytes for the keys below the prefix.
const maxPrefixBytes = 512

func (u *URL) setQuery(raw string) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return &URLError{"its parameters are not well-formed", "write ?name=value&name=value with special characters as %XX"}
	}
	pathStyle := ""
	for name, values := range query {
		if !slices.Contains(queryParams, name) {
			return unknownParam(name)
		}
		if len(values) != 1 || values[0] == "" {
			return &URLError{"parameter " + name + " needs exactly one value", "write " + name + "=VALUE once or remove it"}
		}
		v, ok := values[0], true
		switch name {
		case "region":
			u.Region, ok = v, plainWord.MatchString(v)
		case "storage-class":
			u.StorageClass, ok = v, plainWord.MatchString(v)
		case "kms-key-id":
			u.KMSKeyID, ok = v, kmsKey.MatchString(v)
		case "path-style":
			pathStyle, ok = v, v == "true" || v == "false"
		case "endpoint":
			if u.Endpoint, err = parseEndpoint(v); err != nil {
				return err
			}
		}
		if !ok {
			return &URLError{"the value of " + name + " is not valid", paramFix[name]}
		}
	}
	u.PathStyle = pathStyle == "true" || (pathStyle == "" && u.Endpoint != "")
	return nil
}

var paramFix = map[string]string{
	"region":        "write a region's name such as eu-central-1",
	"storage-class": "write a storage class such as STANDARD or STANDARD_IA",
	"kms-key-id":    "write a key id, alias or ARN",
	"path-style":    "write path-style=true or path-style=false",
}

// unknownParam repeats no name that is far from a known one: it may be a secret.
func unknownParam(name string) error {
	lower := strings.ToLower(name)
	for _, word := range []string{"secret", "access", "token", "password", "credential"} {
		if strings.Contains(lower, word) {
			return &URLError{"it carries credentials", credentialsFix}
		}
	}
	fix := "the parameters are " + strings.Join(queryParams, ", ")
	if known, ok := config.Nearest(lower, queryParams); ok {
		fix = "did you mean " + known + "? " + fix
	}
	return &URLError{"it has an unknown parameter", fix}
}

func parseEndpoint(raw string) (string, error) {
	const fix = "write endpoint=http://host:port or endpoint=https://host:port"
	e, err := url.Parse(raw)
	switch {
	case err != nil || (e.Scheme != "http" && e.Scheme != "https") || e.Hostname() == "" || e.Opaque != "":
		return "", &URLError{"the endpoint is not an http or https URL", fix}
	case e.User != nil:
		return "", &URLError{"the endpoint carries credentials", credentialsFix}
	case strings.Trim(e.Path, "/") != "" || e.RawQuery != "" || e.ForceQuery || e.Fragment != "":
		return "", &URLError{"the endpoint has more than a host and a port", fix}
	}
	return e.Scheme + "://" + e.Host, nil
}

// String is the canonical form: parameters in order, defaults left out.
func (u URL) String() string {
	switch u.Scheme {
	case "mem":
		return "mem:"
	case "dir":
		return (&url.URL{Scheme: "dir", Path: u.Path, OmitHost: false}).String()
	}
	query := url.Values{}
	for name, v := range map[string]string{
		"region": u.Region, "endpoint": u.Endpoint, "storage-class": u.StorageClass, "kms-key-id": u.KMSKeyID,
	} {
		if v != "" {
			query.Set(name, v)
		}
	}
	if u.PathStyle != (u.Endpoint != "") {
		query.Set("path-style", strconv.FormatBool(u.PathStyle))
	}
	out := url.URL{Scheme: u.Scheme, Host: u.Bucket, RawQuery: query.Encode()}
	if u.Prefix != "" {
		out.Path = "/" + u.Prefix
	}
	return out.String()
}
