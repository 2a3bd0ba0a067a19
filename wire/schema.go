package wire

// The kinds of content that a SchemaPreview tells apart.
const (
	SchemaEmpty     = "empty"
	SchemaJSON      = "json"       // one value
	SchemaJSONLines = "json_lines" // a value a line
	SchemaCSV       = "csv"        // a table, whatever stands between its cells
	SchemaText      = "text"
	SchemaImage     = "image"
	SchemaBinary    = "binary"
)

// SchemaPreview is how a file's content is built: kinds, types and counts, never
// a value. Names (header cells of a table, keys of JSON's objects) are there only
// for files of which the owner of the machine said so.
type SchemaPreview struct {
	Kind         string `json:"kind"`
	Encoding     string `json:"encoding,omitempty"` // of text: utf-8, utf-16le, utf-16be, 8-bit
	Format       string `json:"format,omitempty"`   // of an image: png, jpeg, gif, webp, bmp, tiff
	ScannedBytes int64  `json:"scanned_bytes"`      // the counts are about these
	Complete     bool   `json:"complete"`           // they are all there are

	Lines       int64 `json:"lines,omitempty"`        // of text
	LongestLine int64 `json:"longest_line,omitempty"` // in characters

	Table *SchemaTable `json:"table,omitempty"` // of csv
	Value *SchemaValue `json:"value,omitempty"` // of json; of json_lines all values together
}

// SchemaTable is how a table is built.
type SchemaTable struct {
	Delimiter string         `json:"delimiter,omitempty"` // comma, semicolon, tab, pipe; absent: one column
	Header    bool           `json:"header"`              // the first row names the columns, as far as types can tell
	Rows      int64          `json:"rows"`                // without the header
	Uneven    int64          `json:"uneven_rows"`         // of these: with more or fewer cells than the first row
	Width     int            `json:"width"`               // columns of the first row
	Columns   []SchemaColumn `json:"columns"`             // the first 128 of them
}

// SchemaColumn is what the cells of a column are.
type SchemaColumn struct {
	Name  string           `json:"name,omitempty"`
	Types map[string]int64 `json:"types"` // integer, number, boolean, date, time, datetime, text, empty: how many
}

// SchemaValue is what JSON values at one place of a document are, all of them
// together.
type SchemaValue struct {
	Name     string           `json:"name,omitempty"`     // the key, of a member
	Types    map[string]int64 `json:"types"`              // string, integer, number, boolean, null, object, array: how many
	Members  []*SchemaValue   `json:"members,omitempty"`  // of objects, by key, as they first came
	Values   *SchemaValue     `json:"values,omitempty"`   // instead, where there are too many keys: all members together
	Size     *SchemaSpan      `json:"size,omitempty"`     // members of an object
	Elements *SchemaValue     `json:"elements,omitempty"` // of arrays, all together
	Length   *SchemaSpan      `json:"length,omitempty"`   // elements of an array
	Partial  bool             `json:"partial,omitempty"`  // more lies below than is told
}

// SchemaSpan is a smallest and a largest count.
type SchemaSpan struct {
	Least int64 `json:"least"`
	Most  int64 `json:"most"`
}
