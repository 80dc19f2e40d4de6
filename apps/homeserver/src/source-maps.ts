import { readFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import { fileURLToPath } from 'node:url';

/** Maps that are kept: those that were read last. */
const maxKept = 64;

/**
 * Shows errors where they are in the sources. A map is read when an error that somebody looks at came by its file; the runtime's
 * own `--enable-source-maps` reads all of them while files are loaded, and keeps them: 10 MiB, and 7 to 8 % of the time of a start.
 * Does nothing where that option is given.
 */
export function mapStacks(): void {
  if (process.sourceMapsEnabled) return;
  const maps = new Map<string, SourceMap | undefined>();
  const mapOf = (url: string): SourceMap | undefined => {
    if (!maps.has(url)) {
      for (const oldest of maps.keys()) if (maps.size >= maxKept) maps.delete(oldest);
      maps.set(url, readMap(url));
    }
    return maps.get(url);
  };
  Error.prepareStackTrace = (error, frames) =>
    [describe(error), ...frames.map((frame) => `    at ${place(frame, mapOf)}`)].join('\n');
}

/** The first line, as the engine has it. */
function describe(error: Error): string {
  try {
    return Error.prototype.toString.call(error);
  } catch {
    return '<error>';
  }
}

/** A frame as the engine writes it, with the place in the source. */
function place(frame: NodeJS.CallSite, mapOf: (url: string) => SourceMap | undefined): string {
  const text = String(frame);
  const [file, line, column] = [frame.getFileName(), frame.getLineNumber(), frame.getColumnNumber()];
  if (!file?.startsWith('file:') || line === null || column === null) return text;
  try {
    const origin = mapOf(file)?.findOrigin(line, column);
    if (origin === undefined || !('fileName' in origin)) return text;
    const source = fileURLToPath(new URL(origin.fileName, file));
    return text.replace(`${file}:${line}:${column}`, () => `${source}:${origin.lineNumber}:${origin.columnNumber}`);
  } catch {
    // Maps of packages may name what is no file, as `webpack://` does. What throws here could not be shown at all.
    return text;
  }
}

/** The map beside a file; nothing for a file that has none. */
function readMap(url: string): SourceMap | undefined {
  try {
    return new SourceMap(JSON.parse(readFileSync(new URL(`${url}.map`), 'utf8')));
  } catch {
    return undefined;
  }
}
