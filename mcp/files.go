package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"farhand/client"
	"farhand/wire"
)

func fileTools() []tool {
	return []tool{
		define("list_files", "List files",
			"Lists a directory, at most 1000 entries. Sizes are in bytes.",
			reads, wire.Files, listFiles),
		define("file_info", "Look at a file",
			"Says whether a path exists and what it is: kind, size, times, permissions.",
			reads, wire.Files, fileInfo),
		define("read_file", "Read a file",
			"Reads a file or a part of it. Text comes as text, an image as an image, anything else as base64. Choose a part by lines (start_line, max_lines) or by bytes (offset, length); next_line or next_offset says where to go on.",
			reads, wire.Files, readFile),
		define("write_file", "Write a file",
			"Creates a file or replaces its whole content, in one step: nobody ever sees half of it. To change a part of a file use edit_file.",
			destroys, wire.Files, writeFile).idempotent(),
		define("edit_file", "Edit a file",
			"Replaces passages of a text file. Each old_text must occur exactly once unless replace_all is set. All edits are made, or none.",
			destroys, wire.Files, editFile),
		define("search_files", "Search in files",
			"Finds the lines of text files below a directory that match a regular expression. Files larger than 4 MiB and binary files are left out.",
			reads, wire.Files, searchFiles),
		define("move_file", "Move a file",
			"Renames or moves a file or directory within one root.",
			destroys, wire.Files, moveFile),
		define("delete_file", "Delete a file",
			"Removes a file, a link (not its target) or a directory.",
			destroys, wire.Files, deleteFile),
	}
}

// onFile is a path on a machine.
type onFile struct {
	onMachine
	Path string `json:"path" jsonschema:"absolute, or relative to the machine's first root" length:"1..4096"`
}

type listAsked struct {
	onMachine
	Path       string `json:"path,omitempty" jsonschema:"the directory, absolute or relative to the first root; default: the first root itself" default:"\".\""`
	Glob       string `json:"glob,omitempty" jsonschema:"only names that match, such as *.log"`
	Recursive  bool   `json:"recursive,omitempty" jsonschema:"also what lies in directories below"`
	Hidden     bool   `json:"include_hidden,omitempty" jsonschema:"also names that begin with a dot"`
	MaxEntries int    `json:"max_entries,omitempty" default:"200" range:"1..1000"`
}

type filesFound struct {
	Entries   []fileFound `json:"entries"`
	Truncated bool        `json:"truncated" jsonschema:"there are more"`
}

type fileFound struct {
	Path     string `json:"path"`
	Kind     string `json:"kind" jsonschema:"file, directory, link or other"`
	Size     int64  `json:"size_bytes"`
	Modified string `json:"modified" jsonschema:"RFC 3339, UTC"`
}

func listFiles(ctx context.Context, c *call, in listAsked) (filesFound, string, error) {
	out := filesFound{Entries: []fileFound{}}
	ses, err := c.at(ctx, in.Machine, in.Path)
	if err != nil {
		return out, "", err
	}
	list, err := ses.List(ctx, wire.FileList{
		Path: in.Path, Glob: optional(in.Glob), Recursive: in.Recursive, IncludeHidden: in.Hidden, MaxEntries: &in.MaxEntries,
	})
	if err != nil {
		return out, "", err
	}
	out.Truncated = list.Truncated
	var text strings.Builder
	for _, e := range list.Entries {
		found := fileFound{Path: e.Path, Kind: "other", Size: e.SizeBytes, Modified: moment(e.MTime)}
		switch {
		case e.IsSymlink:
			found.Kind = "link"
		case e.IsDir:
			found.Kind = "directory"
		case e.IsFile:
			found.Kind = "file"
		}
		out.Entries = append(out.Entries, found)
		slash := ""
		if e.IsDir {
			slash = "/"
		}
		fmt.Fprintf(&text, "%12d  %s  %s%s\n", e.SizeBytes, found.Modified, e.Path, slash)
	}
	switch {
	case out.Truncated:
		text.WriteString("[there are more: narrow it by glob, or raise max_entries]\n")
	case len(out.Entries) == 0:
		text.WriteString("[empty]\n")
	}
	return out, text.String(), nil
}

// moment is a time of a file, given in seconds since 1970.
func moment(unix float64) string {
	whole := int64(unix)
	return time.Unix(whole, int64((unix-float64(whole))*1e9)).UTC().Format(time.RFC3339)
}

type infoFound struct {
	Exists   bool   `json:"exists"`
	Path     string `json:"path,omitempty" jsonschema:"canonical, absolute"`
	Kind     string `json:"kind,omitempty" jsonschema:"file, directory, link or other"`
	Size     int64  `json:"size_bytes,omitempty"`
	Modified string `json:"modified,omitempty" jsonschema:"RFC 3339, UTC"`
	Mode     string `json:"mode,omitempty" jsonschema:"octal permissions"`
	UID      int    `json:"owner_uid,omitempty"`
	GID      int    `json:"owner_gid,omitempty"`
	MIMEType string `json:"mime_type,omitempty"`
}

func fileInfo(ctx context.Context, c *call, in onFile) (infoFound, string, error) {
	ses, err := c.at(ctx, in.Machine, in.Path)
	if err != nil {
		return infoFound{}, "", err
	}
	st, err := ses.Stat(ctx, in.Path, true)
	if err != nil {
		return infoFound{}, "", err
	}
	if !st.Exists {
		return infoFound{}, in.Path + " doesn't exist", nil
	}
	out := infoFound{
		Exists: true, Path: value(st.Path), Kind: "other", Size: value(st.SizeBytes), Modified: moment(value(st.MTime)),
		Mode: value(st.Mode), UID: int(value(st.OwnerUID)), GID: int(value(st.OwnerGID)), MIMEType: value(st.MIMEType),
	}
	switch {
	case value(st.IsDir):
		out.Kind = "directory"
	case value(st.IsFile):
		out.Kind = "file"
	case value(st.IsSymlink):
		out.Kind = "link"
	}
	return out, fmt.Sprintf("%s: %s, %d bytes, modified %s, mode %s", out.Path, out.Kind, out.Size, out.Modified, out.Mode), nil
}

// value is what a pointer points to, or zero.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// maxRead is the most that one read_file returns: what a model can still take in.
const maxRead = 1 << 20

// maxText is the largest file whose lines are counted or edited.
const maxText = 10 << 20

type readAsked struct {
	onFile
	StartLine int   `json:"start_line,omitempty" jsonschema:"first line to read, counted from 1" range:"1.."`
	MaxLines  int   `json:"max_lines,omitempty" jsonschema:"how many lines; default 2000 with start_line, otherwise all" range:"1.."`
	Offset    int64 `json:"offset,omitempty" jsonschema:"first byte to read, counted from 0" range:"0.."`
	Length    int64 `json:"length,omitempty" jsonschema:"how many bytes at most" default:"262144" range:"1..1048576"`
}

type fileRead struct {
	Content    string `json:"content" jsonschema:"empty if the file is an image, which comes as one"`
	Encoding   string `json:"encoding" jsonschema:"text, base64 or image"`
	Bytes      int    `json:"bytes" jsonschema:"how many bytes of the file this is"`
	StartLine  int    `json:"start_line,omitempty" jsonschema:"the number of the first line of content"`
	NextLine   int    `json:"next_line,omitempty" jsonschema:"there is more: go on with this start_line"`
	NextOffset int64  `json:"next_offset,omitempty" jsonschema:"there is more: go on with this offset"`
}

func readFile(ctx context.Context, c *call, in readAsked) (fileRead, string, error) {
	ses, err := c.at(ctx, in.Machine, in.Path)
	if err != nil {
		return fileRead{}, "", err
	}
	if in.StartLine > 0 || in.MaxLines > 0 {
		if in.Offset > 0 {
			return fileRead{}, "", wire.Errorf(wire.InvalidArgument, "give lines or bytes, not both").With("field", "offset")
		}
		return readLines(ctx, c, ses, in)
	}
	length := in.Length
	image := imageType(in.Path)
	if image != "" && in.Offset == 0 {
		length = maxRead // half an image is none
	}
	got, err := ses.Read(ctx, in.Path, in.Offset, length)
	if err != nil {
		return fileRead{}, "", err
	}
	b := got.Content
	out := fileRead{Bytes: len(b), Encoding: "text"}
	if got.Truncated {
		out.NextOffset = in.Offset + int64(len(b))
	}
	if image != "" && in.Offset == 0 && !got.Truncated && strings.HasPrefix(http.DetectContentType(b), "image/") {
		out.Encoding = "image"
		c.content = append(c.content, &mcp.ImageContent{Data: b, MIMEType: image})
		return out, fmt.Sprintf("%s, %d bytes, %s", in.Path, len(b), image), nil
	}
	if got.Truncated { // a character that was cut in two belongs to the next piece
		whole := b[:len(b)-cutRune(b)]
		if utf8.Valid(whole) && len(whole) > 0 {
			b = whole
			out.Bytes, out.NextOffset = len(b), in.Offset+int64(len(b))
		}
	}
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		out.Encoding, out.Content = "base64", base64.StdEncoding.EncodeToString(b)
	} else {
		out.Content = string(b)
	}
	text := out.Content
	if out.NextOffset > 0 {
		text += fmt.Sprintf("\n[there is more: go on with offset %d]", out.NextOffset)
	}
	if text == "" {
		text = "[empty]"
	}
	return out, text, nil
}

// cutRune is how many bytes at the end begin a character that goes on.
func cutRune(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}

// imageType is the type of an image that models look at, by the file's name.
func imageType(name string) string {
	switch t := mime.TypeByExtension(strings.ToLower(path.Ext(name))); t {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return t
	}
	return ""
}

// whole reads a text file to its end.
func whole(ctx context.Context, c *call, ses *client.Session, name string, most int64) ([]byte, error) {
	st, err := ses.Stat(ctx, name, true)
	switch {
	case err != nil:
		return nil, err
	case !st.Exists:
		return nil, wire.Errorf(wire.PathNotFound, "%s doesn't exist", name).With("path", name)
	case value(st.SizeBytes) > most:
		return nil, wire.Errorf(wire.FileTooLarge, "%s has %d bytes, more than %d", name, value(st.SizeBytes), most).With("path", name)
	}
	var b bytes.Buffer
	_, err = ses.ReadAll(ctx, name, &b, func(done, total int64) { c.progress(ctx, float64(done), float64(max(total, 0)), "bytes read") })
	return b.Bytes(), err
}

func readLines(ctx context.Context, c *call, ses *client.Session, in readAsked) (fileRead, string, error) {
	b, err := whole(ctx, c, ses, in.Path, maxText)
	if err != nil {
		return fileRead{}, "", err
	}
	if !utf8.Valid(b) {
		return fileRead{}, "", wire.Errorf(wire.InvalidArgument, "%s is no text in UTF-8", in.Path).With("hint", "read it by offset and length")
	}
	start := max(in.StartLine, 1)
	most := in.MaxLines
	if most == 0 {
		most = 2000
	}
	out := fileRead{Encoding: "text", StartLine: start}
	var text strings.Builder
	line := 0
	for l := range strings.Lines(string(b)) {
		line++
		if line < start {
			continue
		}
		if line >= start+most || text.Len()+len(l) > maxRead && text.Len() > 0 {
			out.NextLine = line
			break
		}
		text.WriteString(l)
	}
	if line < start && line > 0 {
		return fileRead{}, "", wire.Errorf(wire.InvalidArgument, "%s has only %d lines", in.Path, line).With("field", "start_line")
	}
	out.Content, out.Bytes = text.String(), text.Len()
	shown := out.Content
	if out.NextLine > 0 {
		shown += fmt.Sprintf("[there is more: go on with start_line %d]", out.NextLine)
	}
	if shown == "" {
		shown = "[empty]"
	}
	return out, shown, nil
}

type writeAsked struct {
	onFile
	Content       string `json:"content" jsonschema:"the whole new content"`
	Encoding      string `json:"encoding,omitempty" jsonschema:"what content is" enum:"text,base64" default:"\"text\""`
	CreateParents bool   `json:"create_parents,omitempty" jsonschema:"make the directories above it that are missing"`
}

type written struct {
	Path  string `json:"path"`
	Bytes int    `json:"bytes_written"`
}

func writeFile(ctx context.Context, c *call, in writeAsked) (written, string, error) {
	content := []byte(in.Content)
	if in.Encoding == "base64" {
		var err error
		if content, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return written{}, "", wire.Errorf(wire.InvalidArgument, "content is not valid base64").With("field", "content")
		}
	}
	ses, err := c.at(ctx, in.Machine, in.Path)
	if err != nil {
		return written{}, "", err
	}
	if err := ses.Write(ctx, in.Path, content, in.CreateParents, nil); err != nil {
		return written{}, "", err
	}
	return written{in.Path, len(content)}, fmt.Sprintf("wrote %d bytes to %s", len(content), in.Path), nil
}

type editAsked struct {
	onFile
	Edits  []edit `json:"edits" jsonschema:"made one after the other" length:"1..100"`
	DryRun bool   `json:"dry_run,omitempty" jsonschema:"only say what would be changed"`
}

type edit struct {
	OldText    string `json:"old_text" jsonschema:"the passage to replace, exactly as it stands in the file, with its spaces and line ends" length:"1.."`
	NewText    string `json:"new_text" jsonschema:"what stands there instead; empty removes it"`
	ReplaceAll bool   `json:"replace_all,omitempty" jsonschema:"replace every occurrence"`
}

type edited struct {
	Path         string `json:"path"`
	Replacements int    `json:"replacements"`
	Bytes        int    `json:"size_bytes" jsonschema:"of the file afterwards"`
	Saved        bool   `json:"saved" jsonschema:"false after dry_run"`
}

func editFile(ctx context.Context, c *call, in editAsked) (edited, string, error) {
	ses, err := c.at(ctx, in.Machine, in.Path)
	if err != nil {
		return edited{}, "", err
	}
	b, err := whole(ctx, c, ses, in.Path, maxText)
	if err != nil {
		return edited{}, "", err
	}
	if !utf8.Valid(b) {
		return edited{}, "", wire.Errorf(wire.InvalidArgument, "%s is no text in UTF-8", in.Path).With("path", in.Path)
	}
	text, n, err := apply(string(b), in.Edits)
	if err != nil {
		return edited{}, "", err
	}
	out := edited{Path: in.Path, Replacements: n, Bytes: len(text), Saved: !in.DryRun}
	if in.DryRun {
		return out, fmt.Sprintf("%d replacements would be made in %s", n, in.Path), nil
	}
	if err := ses.Write(ctx, in.Path, []byte(text), false, nil); err != nil {
		return edited{}, "", err
	}
	return out, fmt.Sprintf("%d replacements made in %s", n, in.Path), nil
}

// apply makes edits, and says how many passages they replaced.
func apply(text string, edits []edit) (string, int, error) {
	all := 0
	for i, e := range edits {
		n := strings.Count(text, e.OldText)
		switch {
		case n == 0:
			return "", 0, wire.Errorf(wire.InvalidArgument, "edit %d: old_text doesn't occur in the file", i+1).
				With("hint", "read_file shows what stands there; spaces and line ends count")
		case n > 1 && !e.ReplaceAll:
			return "", 0, wire.Errorf(wire.InvalidArgument, "edit %d: old_text occurs %d times", i+1, n).
				With("hint", "take more of what stands around it into old_text, or set replace_all")
		}
		text = strings.ReplaceAll(text, e.OldText, e.NewText)
		all += n
	}
	return text, all, nil
}

type moveAsked struct {
	onMachine
	From      string `json:"from" jsonschema:"what to move, absolute or relative to the first root" length:"1..4096"`
	To        string `json:"to" jsonschema:"its new path" length:"1..4096"`
	Overwrite bool   `json:"overwrite,omitempty" jsonschema:"replace a file that is there"`
}

type moved struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func moveFile(ctx context.Context, c *call, in moveAsked) (moved, string, error) {
	ses, err := c.at(ctx, in.Machine, in.From, in.To)
	if err != nil {
		return moved{}, "", err
	}
	err = ses.Move(ctx, wire.FileMove{Src: in.From, Dst: in.To, Overwrite: in.Overwrite})
	return moved{in.From, in.To}, "moved " + in.From + " to " + in.To, err
}

type deleteAsked struct {
	onFile
	Recursive bool `json:"recursive,omitempty" jsonschema:"remove a directory with everything in it"`
}

type deleted struct {
	Path string `json:"path"`
}

func deleteFile(ctx context.Context, c *call, in deleteAsked) (deleted, string, error) {
	ses, err := c.at(ctx, in.Machine, in.Path)
	if err != nil {
		return deleted{}, "", err
	}
	err = ses.Delete(ctx, wire.FileDelete{Path: in.Path, Recursive: in.Recursive})
	return deleted{in.Path}, "deleted " + in.Path, err
}
