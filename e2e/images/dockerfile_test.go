package images

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A step is an instruction of a Dockerfile.
type step struct{ word, rest string }

// A stage is a FROM and what follows it.
type stage struct {
	name, from string
	steps      []step
}

var (
	continued = regexp.MustCompile(`\\\n`)
	// option is one of an instruction, such as --from=build.
	option = regexp.MustCompile(`^--(\w+)=(\S*)\s+`)
)

// parse reads a Dockerfile. arguments are the values of ARG in front of the first stage.
func parse(t *testing.T, text string, arguments map[string]string) (stages []stage) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	for line := range strings.Lines(continued.ReplaceAllString(strings.Join(lines, ""), "")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "":
		case word == "ARG" && len(stages) == 0:
			name, value, _ := strings.Cut(rest, "=")
			arguments[name] = value
		case word == "FROM":
			rest = option.ReplaceAllString(os.Expand(rest, func(name string) string { return arguments[name] }), "")
			from, name, _ := strings.Cut(rest, " AS ")
			stages = append(stages, stage{name: name, from: from})
		case len(stages) == 0:
			t.Fatalf("%s is in front of the first stage", line)
		default:
			last := &stages[len(stages)-1]
			last.steps = append(last.steps, step{word, rest})
		}
	}
	return stages
}

// An image is a root file system, and how it is run.
type image struct {
	root       string
	user       string
	ports      string
	entrypoint []string
	command    []string
}

// A builder runs stages.
type builder struct {
	t       *testing.T
	context string // what is built
	stages  []stage
	// bases are folders for images, by their beginning; empty: an empty one, and this machine's programs.
	bases map[string]string
	env   map[string]string
	built map[string]image
}

// build returns the image of a stage, by its name; that of the last one has none.
func (b *builder) build(name string) image {
	b.t.Helper()
	if i, ok := b.built[name]; ok {
		return i
	}
	for _, s := range b.stages {
		if s.name == name {
			b.built[name] = b.run(s)
			return b.built[name]
		}
	}
	b.t.Fatalf("there is no stage %q", name)
	return image{}
}

func (b *builder) run(s stage) (i image) {
	b.t.Helper()
	i.root = b.t.TempDir()
	known := false
	for beginning, folder := range b.bases {
		if strings.HasPrefix(s.from, beginning) {
			known = true
			if folder != "" {
				b.command("", "cp", "-a", folder+"/.", i.root)
			}
		}
	}
	if !known {
		b.t.Fatalf("nothing stands for the base %s", s.from)
	}
	env, at := maps.Clone(b.env), "/"
	for _, step := range s.steps {
		switch step.word {
		case "ARG":
			for _, arg := range strings.Fields(step.rest) {
				if name, value, found := strings.Cut(arg, "="); found && env[name] == "" {
					env[name] = value
				}
			}
		case "WORKDIR":
			at = filepath.Join(at, step.rest)
		case "COPY":
			b.copy(i.root, at, step.rest)
		case "RUN":
			b.shell(i.root, at, step.rest, env)
		case "USER":
			i.user = step.rest
		case "EXPOSE":
			i.ports = step.rest
		case "ENTRYPOINT":
			i.entrypoint = b.list(step.rest)
		case "CMD":
			i.command = b.list(step.rest)
		default:
			b.t.Fatalf("this test does not know the instruction %s", step.word)
		}
	}
	return i
}

func (b *builder) list(text string) (words []string) {
	b.t.Helper()
	if err := json.Unmarshal([]byte(text), &words); err != nil {
		b.t.Fatalf("%s is no list: a shell would be needed, which the image does not have: %v", text, err)
	}
	return words
}

// copy copies files, from another stage, or from what is built, as the last of them says.
func (b *builder) copy(root, at, rest string) {
	b.t.Helper()
	from := ""
	if o := option.FindStringSubmatch(rest); o != nil {
		from, rest = b.build(o[2]).root, strings.TrimPrefix(rest, o[0])
	}
	words := strings.Fields(rest)
	target := words[len(words)-1]
	to := filepath.Join(root, at, target)
	if filepath.IsAbs(target) {
		to = filepath.Join(root, target)
	}
	folder := to
	if !strings.HasSuffix(target, "/") && target != "." {
		folder = filepath.Dir(to)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		b.t.Fatal(err)
	}
	for _, source := range words[:len(words)-1] {
		switch {
		case from != "":
			b.command("", "cp", "-a", filepath.Join(from, source), to)
		case source == ".":
			b.command(b.context, "sh", "-c", `git ls-files -z --cached --others --exclude-standard | `+
				`tar --create --null --ignore-failed-read --files-from - | tar --extract --directory "$0"`, to)
			b.ignore(to)
		default:
			b.command("", "cp", "-a", filepath.Join(b.context, source), to)
		}
	}
}

// ignore removes what .dockerignore names.
func (b *builder) ignore(folder string) {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.context, ".dockerignore"))
	if err != nil {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if err := os.RemoveAll(filepath.Join(folder, strings.TrimSpace(line))); err != nil {
			b.t.Fatal(err)
		}
	}
}

// inImage is a path in the image, in a shell's line.
var inImage = regexp.MustCompile(`(\s)/(\w)`)

// shell runs a line, with its paths below root.
func (b *builder) shell(root, at, line string, env map[string]string) {
	b.t.Helper()
	c := exec.CommandContext(b.t.Context(), "sh", "-e", "-c", inImage.ReplaceAllString(line, "${1}"+root+"/${2}"))
	c.Dir = filepath.Join(root, at)
	c.Env = os.Environ()
	for name, value := range env {
		c.Env = append(c.Env, name+"="+value)
	}
	if out, err := c.CombinedOutput(); err != nil {
		b.t.Fatalf("RUN %s: %v\n%s", line, err, out)
	}
}

func (b *builder) command(dir, name string, args ...string) {
	b.t.Helper()
	c := exec.CommandContext(b.t.Context(), name, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		b.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// platform returns the arguments that BuildKit would set for this machine.
func platform(version string) map[string]string {
	return map[string]string{"TARGETOS": runtime.GOOS, "TARGETARCH": runtime.GOARCH, "VERSION": version}
}

// added returns what an image has beyond its base.
func (i image) added(t *testing.T, base string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(i.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, i.root)
		if _, err := os.Lstat(filepath.Join(base, name)); err != nil {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestADockerfileIsReadAsItIsWritten(t *testing.T) {
	arguments := map[string]string{}
	got := parse(t, "# a\nARG A=1\nFROM --platform=$B x:${A} AS y\nRUN a \\\n  b\n\nFROM z\nUSER 1\n", arguments)
	want := `[{y x:1 [{RUN a   b}]} { z [{USER 1}]}]`
	if text := fmt.Sprint(got); text != want || arguments["A"] != "1" {
		t.Errorf("it reads as %s, want %s", text, want)
	}
	command := inImage.ReplaceAllString("go build -o /x ./cmd/x && a /y >/dev/null", "${1}R/${2}")
	if command != "go build -o R/x ./cmd/x && a R/y >/dev/null" {
		t.Errorf("the paths of the image are found as %s", command)
	}
}
