package files

import "strings"

// mimeType guesses a type from the name's extension alone, "" if unknown. The
// table is ours, so that the answer doesn't depend on what is installed; the
// types are those registered with IANA, or in common use where none is.
func mimeType(name string) string {
	dot := strings.LastIndexByte(name, '.')
	if dot <= 0 {
		return "" // none, or a hidden file
	}
	switch strings.ToLower(name[dot+1:]) {
	case "txt", "text", "log", "conf", "cfg", "ini", "env":
		return "text/plain"
	case "csv":
		return "text/csv"
	case "tsv":
		return "text/tab-separated-values"
	case "md", "markdown":
		return "text/markdown"
	case "html", "htm":
		return "text/html"
	case "css":
		return "text/css"
	case "js", "mjs":
		return "text/javascript"
	case "py":
		return "text/x-python"
	case "c", "h":
		return "text/x-c"
	case "rst":
		return "text/x-rst"
	case "vcf":
		return "text/vcard"
	case "ics":
		return "text/calendar"
	case "json", "map":
		return "application/json"
	case "jsonl", "ndjson":
		return "application/x-ndjson"
	case "xml", "xsd":
		return "application/xml"
	case "yaml", "yml":
		return "application/yaml"
	case "toml":
		return "application/toml"
	case "sql":
		return "application/sql"
	case "sh":
		return "application/x-sh"
	case "pdf":
		return "application/pdf"
	case "rtf":
		return "application/rtf"
	case "zip":
		return "application/zip"
	case "gz", "tgz":
		return "application/gzip"
	case "bz2":
		return "application/x-bzip2"
	case "xz":
		return "application/x-xz"
	case "zst":
		return "application/zstd"
	case "7z":
		return "application/x-7z-compressed"
	case "tar":
		return "application/x-tar"
	case "wasm":
		return "application/wasm"
	case "bin", "img", "iso", "hex", "elf", "so", "o", "a":
		return "application/octet-stream"
	case "sqlite", "sqlite3":
		return "application/vnd.sqlite3"
	case "doc":
		return "application/msword"
	case "docx":
		return "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	case "xls":
		return "application/vnd.ms-excel"
	case "xlsx":
		return "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	case "ppt":
		return "application/vnd.ms-powerpoint"
	case "pptx":
		return "application/vnd.openxmlformats-officedocument.presentationml.presentation"
	case "odt":
		return "application/vnd.oasis.opendocument.text"
	case "ods":
		return "application/vnd.oasis.opendocument.spreadsheet"
	case "epub":
		return "application/epub+zip"
	case "png":
		return "image/png"
	case "jpg", "jpeg":
		return "image/jpeg"
	case "gif":
		return "image/gif"
	case "webp":
		return "image/webp"
	case "svg":
		return "image/svg+xml"
	case "bmp":
		return "image/bmp"
	case "tif", "tiff":
		return "image/tiff"
	case "ico":
		return "image/vnd.microsoft.icon"
	case "heic":
		return "image/heic"
	case "avif":
		return "image/avif"
	case "mp3":
		return "audio/mpeg"
	case "wav":
		return "audio/x-wav"
	case "ogg", "oga":
		return "audio/ogg"
	case "flac":
		return "audio/flac"
	case "m4a":
		return "audio/mp4"
	case "mp4", "m4v":
		return "video/mp4"
	case "mov":
		return "video/quicktime"
	case "mkv":
		return "video/x-matroska"
	case "webm":
		return "video/webm"
	case "avi":
		return "video/x-msvideo"
	case "h264":
		return "video/h264"
	case "stl":
		return "model/stl"
	case "3mf":
		return "model/3mf"
	case "obj":
		return "model/obj"
	case "gcode", "gco", "g":
		return "text/x-gcode"
	case "ttf":
		return "font/ttf"
	case "otf":
		return "font/otf"
	case "woff":
		return "font/woff"
	case "woff2":
		return "font/woff2"
	}
	return ""
}
