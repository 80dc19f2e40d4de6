import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** What is read of a map, as https://tc39.es/ecma426/ has it. */
interface SourceMap {
  /** Addresses, seen from the compiled file. */
  readonly sources: readonly string[];
  readonly mappings: string;
}

/** A place in a file: both numbers begin at 1. */
interface Place {
  readonly line: number;
  readonly column: number;
}

/** A place in one of a map's sources, by its number there. */
interface SourcePlace extends Place {
  readonly source: number;
}

/** Places that are kept: those that were looked up last. */
const maxKept = 1_000;

/**
 * Shows errors where they are in the sources. A map is read when an error that somebody looks at came by its file, and not kept: the
 * largest has three million characters. The runtime's own `--enable-source-maps` reads all of them while files are loaded.
 * Does nothing where that option is given.
 */
export function mapStacks(): void {
  if (process.sourceMapsEnabled) return;
  const known = new Map<string, string | undefined>();
  Error.prepareStackTrace = (error, frames) => {
    const found = lookUp(frames, known);
    for (const oldest of known.keys()) if (known.size > maxKept) known.delete(oldest);
    return [describe(error), ...frames.map((frame) => `    at ${inSource(frame, found)}`)].join('\n');
  };
}

/** The first line, as the engine has it. */
function describe(error: Error): string {
  try {
    return Error.prototype.toString.call(error);
  } catch {
    return '<error>';
  }
}

/** Where in its compiled file a frame is, as the engine writes it; nothing for what has no file by its URL. */
function placeOf(frame: NodeJS.CallSite): (Place & { readonly url: string; readonly text: string }) | undefined {
  const [url, line, column] = [frame.getFileName(), frame.getLineNumber(), frame.getColumnNumber()];
  if (!url?.startsWith('file:') || line === null || column === null) return undefined;
  return { url, line, column, text: `${url}:${line}:${column}` };
}

/** A frame as the engine writes it, with the place in the source. */
function inSource(frame: NodeJS.CallSite, found: ReadonlyMap<string, string | undefined>): string {
  const text = String(frame);
  const place = placeOf(frame)?.text;
  const source = place === undefined ? undefined : found.get(place);
  return place === undefined || source === undefined ? text : text.replace(place, () => source);
}

/** What is known of the frames' places, after a look into the maps of those that were not: into each but once. */
function lookUp(
  frames: readonly NodeJS.CallSite[],
  known: Map<string, string | undefined>,
): ReadonlyMap<string, string | undefined> {
  const found = new Map<string, string | undefined>();
  const places = frames.flatMap((frame) => placeOf(frame) ?? []);
  const unknown = places.filter(({ text }) => !known.has(text));
  for (const [url, inFile] of Map.groupBy(unknown, (place) => place.url)) {
    const sources = placesThere(url, inFile);
    inFile.forEach(({ text }, i) => known.set(text, sources[i]));
  }
  for (const { text } of places) found.set(text, known.get(text));
  return found;
}

/** Places of a compiled file in the sources, by the map beside it; none for a file that has no map. */
function placesThere(url: string, places: readonly Place[]): readonly (string | undefined)[] {
  try {
    const map = JSON.parse(readFileSync(new URL(`${url}.map`), 'utf8')) as SourceMap;
    return placesInSources(map, places).map((place) => place && shown(place, map, url));
  } catch {
    // What throws here could not be shown at all.
    return [];
  }
}

/** Nothing for what is no file: maps of packages may name `webpack://`, and a bundle has lines of its own. */
function shown({ source, line, column }: SourcePlace, { sources }: SourceMap, url: string): string | undefined {
  try {
    return `${fileURLToPath(new URL(sources[source] ?? '', url))}:${line}:${column}`;
  } catch {
    return undefined;
  }
}

/** What stands for a digit of base 64, by the digit. */
const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const valueOf = new Uint8Array(128);
for (let digit = 0; digit < digits.length; digit++) valueOf[digits.charCodeAt(digit)] = digit;
const [semicolon, comma] = [';'.charCodeAt(0), ','.charCodeAt(0)];

/**
 * Where places of a compiled file are in its sources, in the order of the places; nothing for what comes from no source. Reads through
 * the map once and builds nothing from it: a map of all the server would be a hundred times as large in memory as an answer is.
 */
function placesInSources({ mappings }: SourceMap, places: readonly Place[]): readonly (SourcePlace | undefined)[] {
  const found = new Array<SourcePlace | undefined>(places.length);
  const pending = places
    .map((place, index) => ({ ...place, index }))
    .sort((a, b) => a.line - b.line || a.column - b.column);
  let next = 0;
  const segments = new Segments(mappings);
  let last = { ...segments.at };
  while (next < pending.length) {
    const isMore = segments.advance();
    const { at } = segments;
    for (let wanted = pending[next]; wanted && (!isMore || isBehind(at, wanted)); wanted = pending[++next]) {
      if (last.isMapped && last.line === wanted.line)
        found[wanted.index] = {
          source: last.source,
          line: last.sourceLine + 1,
          column: last.sourceColumn + wanted.column - last.column,
        };
    }
    if (at.line === pending[next]?.line) last = { ...at };
  }
  return found;
}

const isBehind = (at: { readonly line: number; readonly column: number }, wanted: Place): boolean =>
  at.line > wanted.line || (at.line === wanted.line && at.column >= wanted.column);

/** Goes from one segment of a map to the next; each says by how much it differs from the one before. */
class Segments {
  /** The segment that was read last: its line begins at 1, all other numbers at 0. */
  readonly at = { line: 1, column: 0, source: 0, sourceLine: 0, sourceColumn: 0, isMapped: false };
  readonly #text: string;
  #position = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** @returns whether there was one */
  advance(): boolean {
    const { at } = this;
    for (let code = this.#code(); code === semicolon || code === comma; code = this.#code()) {
      this.#position++;
      if (code === comma) continue;
      at.line++;
      at.column = 0;
    }
    if (this.#position >= this.#text.length) return false;
    at.column += this.#number();
    at.isMapped = !this.#isOver();
    if (!at.isMapped) return true;
    at.source += this.#number();
    at.sourceLine += this.#number();
    at.sourceColumn += this.#number();
    // The number of a name.
    while (!this.#isOver()) this.#number();
    return true;
  }

  #code(): number {
    return this.#text.charCodeAt(this.#position);
  }

  #isOver(): boolean {
    const code = this.#code();
    return code === semicolon || code === comma || Number.isNaN(code);
  }

  /** Five bits a digit, lowest first; the sixth says that there are more, and the lowest of all is the sign. */
  #number(): number {
    let value = 0;
    for (let shift = 0; ; shift += 5) {
      const digit = valueOf[this.#code()] ?? 0;
      this.#position++;
      value |= (digit & 31) << shift;
      if ((digit & 32) === 0) break;
    }
    return value & 1 ? -(value >>> 1) : value >>> 1;
  }
}
