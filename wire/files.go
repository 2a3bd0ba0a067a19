package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// The encodings of file content on the wire.
const (
	EncodingUTF8   = "utf-8"
	EncodingBase64 = "base64"
	FormatText     = "text"
	FormatBytes    = "bytes"
)

// FileRead is FILE_READ.payload. Offset and Length count bytes.
type FileRead struct {
	Path     string `json:"path"`
	Encoding string `json:"encoding,omitempty"` // utf-8 (default), base64
	Format   string `json:"format,omitempty"`   // text (default), bytes
	Offset   int64  `json:"offset,omitempty"`
	Length   *int64 `json:"length,omitempty"` // null: to the end
	// Mode is content (default) or, with capability privacy, stub; from others it
	// is ignored.
	Mode string `json:"mode,omitempty"`
}

// Binary says whether the content is wanted as base64: either field suffices.
func (r FileRead) Binary() bool { return r.Encoding == EncodingBase64 || r.Format == FormatBytes }

// FileContents is FILE_CONTENTS.payload. Content holds the bytes as they stand
// on disk; WriteJSON encodes them.
type FileContents struct {
	Content   []byte
	Text      []byte // Content in base64 already, instead of Content
	Encoding  string // EncodingUTF8 or EncodingBase64
	SizeBytes int64  // bytes returned, not the file's size
	Truncated bool   // the file goes on after what was returned

	// Stub, if not nil, is all that there is: the answer in mode stub.
	Stub *FileStub

	// Done, if not nil, takes Content or Text back once it has been written.
	Done func()
}

// Release implements Releaser.
func (f *FileContents) Release() {
	if f.Done != nil {
		f.Content, f.Text = nil, nil
		f.Done()
		f.Done = nil
	}
}

// JSONSize implements Streamer.
func (f *FileContents) JSONSize() int {
	if f.Stub != nil {
		b, err := json.Marshal(f.Stub)
		if err != nil {
			return 0 // as WriteJSON will say
		}
		return len(b)
	}
	if f.Encoding == EncodingBase64 {
		return 100 + base64.StdEncoding.EncodedLen(len(f.Content)) + len(f.Text)
	}
	n := 100 + len(f.Content)
	for i := 0; i < len(f.Content); {
		c := f.Content[i]
		switch {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			n++
		case c < 0x20:
			n += 5
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(f.Content[i:])
			if r == utf8.RuneError && size == 1 {
				n += 2
			}
			i += size
			continue
		}
		i++
	}
	return n
}

// WriteJSON implements Streamer.
func (f *FileContents) WriteJSON(w io.Writer) error {
	if f.Stub != nil {
		b, err := json.Marshal(f.Stub)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
	if _, err := io.WriteString(w, `{"content":"`); err != nil {
		return err
	}
	if err := f.writeContent(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `","encoding":%q,"size_bytes":%d,"truncated":%t}`, f.Encoding, f.SizeBytes, f.Truncated)
	return err
}

func (f *FileContents) writeContent(w io.Writer) error {
	if f.Text != nil {
		_, err := w.Write(f.Text)
		return err
	}
	if f.Encoding == EncodingBase64 {
		return writeBase64(w, f.Content)
	}
	const piece = 32 << 10
	buf := make([]byte, 0, 2*piece)
	for rest := f.Content; len(rest) > 0; {
		n := min(piece, len(rest))
		for k := 0; n < len(rest) && k < utf8.UTFMax && !utf8.RuneStart(rest[n]); k++ {
			n-- // never cut a character in two
		}
		if n == 0 {
			n = min(piece, len(rest))
		}
		buf = appendEscaped(buf[:0], rest[:n])
		if _, err := w.Write(buf); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// MarshalJSON makes FileContents usable with encoding/json too (golden files).
func (f *FileContents) MarshalJSON() ([]byte, error) {
	var b jsonBuffer
	err := f.WriteJSON(&b)
	return b, err
}

type jsonBuffer []byte

func (b *jsonBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// UnmarshalJSON decodes FILE_CONTENTS on the operator's side.
func (f *FileContents) UnmarshalJSON(b []byte) error {
	var content []byte
	err := Fields(b, func(key string, raw []byte) error {
		var err error
		switch key {
		case "content":
			content, err = Unquote(raw)
		case "encoding":
			err = setString(&f.Encoding, key, raw)
		case "size_bytes":
			f.SizeBytes, err = strconv.ParseInt(string(raw), 10, 64)
		case "truncated":
			f.Truncated = string(raw) == "true"
		case "mode":
			if string(raw) == `"`+ModeStub+`"` {
				f.Stub = new(FileStub)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if f.Stub != nil {
		return json.Unmarshal(b, f.Stub)
	}
	f.Content = content
	if f.Encoding == EncodingBase64 {
		f.Content, err = decodeBase64(content)
	}
	return err
}

// FileWrite is FILE_WRITE.payload with its content decoded to bytes.
type FileWrite struct {
	Path          string
	Content       []byte
	Encoding      string
	CreateParents bool
}

// DecodeFileWrite decodes FILE_WRITE without generic decoding of the content,
// which may alias the payload. Bad base64 (RFC 4648 section 4 with padding, no
// line breaks) is INTERNAL_ERROR with details.reason invalid_base64.
func DecodeFileWrite(payload []byte) (FileWrite, error) {
	w := FileWrite{Encoding: EncodingUTF8}
	var content []byte
	var havePath, haveContent bool
	err := Fields(payload, func(key string, raw []byte) error {
		var err error
		switch key {
		case "path":
			havePath = true
			err = setString(&w.Path, key, raw)
		case "content":
			haveContent = true
			content, err = Unquote(raw)
		case "encoding":
			err = setOptional(&w.Encoding, key, raw)
		case "create_parents":
			err = json.Unmarshal(raw, &w.CreateParents)
		}
		return err
	})
	switch {
	case err != nil:
		return w, invalidPayload(err)
	case !havePath || !haveContent:
		return w, invalidPayload(fmt.Errorf("path and content are required"))
	case w.Encoding == EncodingUTF8:
		w.Content = content
		return w, nil
	case w.Encoding == EncodingBase64:
		if w.Content, err = decodeBase64(content); err != nil {
			return w, Errorf(InternalError, "content is not valid base64").With("reason", "invalid_base64")
		}
		return w, nil
	default:
		return w, invalidPayload(fmt.Errorf("unknown encoding"))
	}
}

// decodeBase64 decodes strictly and in place.
func decodeBase64(content []byte) ([]byte, error) {
	for _, c := range content {
		if c == '\n' || c == '\r' { // encoding/base64 skips line breaks
			return nil, base64.CorruptInputError(0)
		}
	}
	n, err := base64.StdEncoding.Strict().Decode(content, content)
	if err != nil {
		return nil, err
	}
	return content[:n], nil
}

// JSONSize implements Streamer.
func (w *FileWrite) JSONSize() int {
	return 128 + 6*len(w.Path) + base64.StdEncoding.EncodedLen(len(w.Content))
}

// WriteJSON implements Streamer: the operator always sends base64, which keeps
// every byte.
func (w *FileWrite) WriteJSON(out io.Writer) error {
	head := append([]byte(`{"path":`), AppendQuoted(nil, []byte(w.Path))...)
	head = append(head, `,"encoding":"base64","create_parents":`...)
	head = strconv.AppendBool(head, w.CreateParents)
	head = append(head, `,"content":"`...)
	if _, err := out.Write(head); err != nil {
		return err
	}
	if err := writeBase64(out, w.Content); err != nil {
		return err
	}
	_, err := io.WriteString(out, `"}`)
	return err
}

// FileStat is FILE_STAT.payload.
type FileStat struct {
	Path           string `json:"path"`
	FollowSymlinks *bool  `json:"follow_symlinks,omitempty"` // default true
}

// FileStatResponse is FILE_STAT_RESPONSE.payload. Everything but Exists and
// Path is null for what doesn't exist.
type FileStatResponse struct {
	Exists    bool     `json:"exists"`
	IsFile    *bool    `json:"is_file"`
	IsDir     *bool    `json:"is_dir"`
	IsSymlink *bool    `json:"is_symlink"`
	SizeBytes *int64   `json:"size_bytes"`
	MTime     *float64 `json:"mtime"` // seconds since the epoch
	CTime     *float64 `json:"ctime"`
	Mode      *string  `json:"mode"` // octal, four digits: "0644", "1777"
	OwnerUID  *uint32  `json:"owner_uid"`
	OwnerGID  *uint32  `json:"owner_gid"`
	MIMEType  *string  `json:"mime_type"`
	Path      *string  `json:"path"` // canonical
}

// decodeFields is Decode without reflection: FILE_STAT is what agents send most.
func (s *FileStat) decodeFields(payload []byte) error {
	*s = FileStat{}
	return Fields(payload, func(key string, raw []byte) error {
		switch key {
		case "path":
			return setOptional(&s.Path, key, raw)
		case "follow_symlinks":
			if string(raw) == "null" {
				return nil
			}
			s.FollowSymlinks = new(bool)
			return setBool(s.FollowSymlinks, key, raw)
		}
		return nil
	})
}

// appendJSON is the payload as encoding/json writes it, but for the escaping of
// strings that RFC 8259 doesn't ask for.
func (r *FileStatResponse) appendJSON(b []byte) []byte {
	b = append(b, `{"exists":`...)
	b = strconv.AppendBool(b, r.Exists)
	b = appendOptional(b, "is_file", r.IsFile, strconv.AppendBool)
	b = appendOptional(b, "is_dir", r.IsDir, strconv.AppendBool)
	b = appendOptional(b, "is_symlink", r.IsSymlink, strconv.AppendBool)
	b = appendOptional(b, "size_bytes", r.SizeBytes, appendInt)
	b = appendOptional(b, "mtime", r.MTime, appendSeconds)
	b = appendOptional(b, "ctime", r.CTime, appendSeconds)
	b = appendOptional(b, "mode", r.Mode, appendString)
	b = appendOptional(b, "owner_uid", r.OwnerUID, appendInt)
	b = appendOptional(b, "owner_gid", r.OwnerGID, appendInt)
	b = appendOptional(b, "mime_type", r.MIMEType, appendString)
	b = appendOptional(b, "path", r.Path, appendString)
	return append(b, '}')
}

func appendOptional[T any](b []byte, key string, value *T, f func([]byte, T) []byte) []byte {
	b = append(b, `,"`...)
	b = append(b, key...)
	b = append(b, `":`...)
	if value == nil {
		return append(b, "null"...)
	}
	return f(b, *value)
}

func appendInt[T int64 | uint32](b []byte, n T) []byte { return strconv.AppendInt(b, int64(n), 10) }

// appendSeconds writes a time; it is finite, as clocks of files are.
func appendSeconds(b []byte, s float64) []byte { return strconv.AppendFloat(b, s, 'f', -1, 64) }

func appendString(b []byte, s string) []byte { return AppendQuoted(b, []byte(s)) }

// FileList is FILE_LIST.payload.
type FileList struct {
	Path          string  `json:"path"`
	Glob          *string `json:"glob,omitempty"` // Python fnmatch over the base name
	Recursive     bool    `json:"recursive,omitempty"`
	IncludeHidden bool    `json:"include_hidden,omitempty"`
	MaxEntries    *int    `json:"max_entries,omitempty"` // default and cap 1000
}

// FileEntry is one entry of a list. Size and times are the link's own, not its
// target's.
type FileEntry struct {
	Name      string  `json:"name"`
	Path      string  `json:"path"`
	IsFile    bool    `json:"is_file"`
	IsDir     bool    `json:"is_dir"`
	IsSymlink bool    `json:"is_symlink"`
	SizeBytes int64   `json:"size_bytes"`
	MTime     float64 `json:"mtime"`
}

// FileListResponse is FILE_LIST_RESPONSE.payload.
type FileListResponse struct {
	Entries   []FileEntry `json:"entries"`
	Truncated bool        `json:"truncated"`
}

// FileDelete is FILE_DELETE.payload.
type FileDelete struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive,omitempty"`
	MissingOK bool   `json:"missing_ok,omitempty"`
}

// FileMove is FILE_MOVE.payload.
type FileMove struct {
	Src       string `json:"src"`
	Dst       string `json:"dst"`
	Overwrite bool   `json:"overwrite,omitempty"`
}
