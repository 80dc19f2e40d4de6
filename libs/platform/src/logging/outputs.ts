import { createSocket } from 'node:dgram';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { compileLayout, type LineLayout } from './layout.js';
import { identityOf, LineWriter } from './line-writer.js';
import type { LogLevel } from './logger.js';
import { readableLine } from './readable.js';

/** When a log file is put aside. */
export interface Rotation {
  /** Before it would become larger, bytes. */
  readonly maxBytes?: number;
  /** After so long; `midnight` is that of the local time. */
  readonly everyMs?: number | 'midnight';
  /** How many old ones are kept. */
  readonly keep: number;
}

/** One place that lines go to. */
export interface LogOutput {
  readonly to: 'stdout' | 'stderr' | 'file' | 'syslog' | 'journal';
  readonly file?: string;
  readonly rotation?: Rotation;
  /** Somebody else puts the file aside. */
  readonly watched?: true;
  readonly format: 'auto' | 'text' | 'json';
  /** Of text, where it is not the usual. */
  readonly layout?: LineLayout;
  /** Least important lines that go there. */
  readonly level?: LogLevel;
  /** Where the daemon of syslog takes datagrams. */
  readonly host?: string;
  readonly port?: number;
  /** Number of the facility in syslog. */
  readonly facility?: number;
}

export const severities: Readonly<Record<string, number>> = { trace: 7, debug: 7, info: 6, warn: 4, error: 3 };
const rank: Readonly<Record<string, number>> = { trace: 10, debug: 20, info: 30, warn: 40, error: 50 };
const dayMs = 86_400_000;
/** Before what failed is tried again, and the place of a file is looked at again. */
const againMs = 1_000;

/** A file that is put aside when it is large or old. */
export class RotatingFile {
  #writer: LineWriter;
  #bytes: number;
  #untilMs: number;
  #notBeforeMs = -Infinity;

  /** @throws Error when the file cannot be opened */
  constructor(
    private readonly file: string,
    private readonly rotation: Rotation,
    private readonly now: () => number = Date.now,
  ) {
    mkdirSync(dirname(file), { recursive: true });
    const known = statSync(file, { throwIfNoEntry: false });
    this.#bytes = known?.size ?? 0;
    this.#untilMs = this.#end(known?.mtimeMs ?? now());
    this.#writer = new LineWriter(file, false);
  }

  /** Takes a line with its end. Never throws. */
  write(line: string): void {
    const { maxBytes = 0 } = this.rotation;
    const size = Buffer.byteLength(line);
    const isFull = maxBytes > 0 && this.#bytes > 0 && this.#bytes + size > maxBytes;
    const nowMs = this.now();
    if ((isFull || nowMs >= this.#untilMs) && nowMs >= this.#notBeforeMs) this.#rotate(nowMs);
    this.#bytes += size;
    this.#writer.write(line);
  }

  /** Writes what waits. */
  close(): Promise<void> {
    return this.#writer.close();
  }

  #end(fromMs: number): number {
    const { everyMs } = this.rotation;
    if (everyMs === undefined) return Infinity;
    if (everyMs !== 'midnight') return fromMs + everyMs;
    return new Date(fromMs).setHours(24, 0, 0, 0);
  }

  #rotate(nowMs: number): void {
    const { file, rotation } = this;
    try {
      // Put aside already where no new one could be opened.
      if (existsSync(file)) {
        if (rotation.everyMs === undefined) this.#shift();
        else this.#date();
      }
    } catch {
      // The log goes on in the same file.
      this.#notBeforeMs = nowMs + againMs;
    }
    try {
      const next = new LineWriter(file, false);
      // What is still being written goes to the file that was put aside.
      void this.#writer.close();
      this.#writer = next;
      this.#bytes = statSync(file).size;
      this.#untilMs = this.#end(nowMs);
    } catch {
      // It goes on in the one that was put aside.
      this.#notBeforeMs = nowMs + againMs;
    }
  }

  /** `file.1` is the newest, as the field's handler has it. */
  #shift(): void {
    const { file, rotation } = this;
    if (rotation.keep === 0) return rmSync(file);
    for (let n = rotation.keep - 1; n > 0; n--) {
      if (statSync(`${file}.${n}`, { throwIfNoEntry: false })) renameSync(`${file}.${n}`, `${file}.${n + 1}`);
    }
    renameSync(file, `${file}.1`);
  }

  /** `file.2026-01-31`, with the time where files change more often than daily. */
  #date(): void {
    const { file, rotation } = this;
    const isDaily = rotation.everyMs === 'midnight' || (rotation.everyMs ?? 0) >= dayMs;
    const startMs = rotation.everyMs === 'midnight' ? this.#untilMs - 1 : this.#untilMs - (rotation.everyMs as number);
    const at = new Date(startMs);
    const two = (n: number): string => String(n).padStart(2, '0');
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    const time = isDaily ? '' : `_${two(at.getHours())}-${two(at.getMinutes())}-${two(at.getSeconds())}`;
    let aside = `${file}.${day}${time}`;
    for (let n = 2; statSync(aside, { throwIfNoEntry: false }); n++) aside = `${file}.${day}${time}-${n}`;
    renameSync(file, aside);
    const name = `${basename(file)}.`;
    const kept = readdirSync(dirname(file)).filter(
      (one) => one.startsWith(name) && /^\d{4}-/.test(one.slice(name.length)),
    );
    if (rotation.keep > 0)
      for (const gone of kept.toSorted().slice(0, -rotation.keep)) rmSync(join(dirname(file), gone));
  }
}

/** A file that somebody else puts aside, as logrotate does: where it has gone, another one is begun. */
export class WatchedFile {
  #writer: LineWriter;
  #identity: string;
  #lookAtMs: number;

  /** @throws Error when the file cannot be opened */
  constructor(
    private readonly file: string,
    private readonly sync: boolean,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.#writer = new LineWriter(file, sync);
    this.#identity = this.#writer.identity;
    this.#lookAtMs = now() + againMs;
  }

  /** Takes a line with its end. Never throws. */
  write(line: string): void {
    const nowMs = this.now();
    if (nowMs >= this.#lookAtMs) {
      this.#lookAtMs = nowMs + againMs;
      this.#look();
    }
    this.#writer.write(line);
  }

  /** Writes what waits. */
  close(): Promise<void> {
    return this.#writer.close();
  }

  #look(): void {
    try {
      const there = statSync(this.file, { bigint: true, throwIfNoEntry: false });
      if (there && identityOf(there) === this.#identity) return;
      const next = new LineWriter(this.file, this.sync);
      this.#identity = next.identity;
      void this.#writer.close();
      this.#writer = next;
    } catch {
      // The log goes on in the file of before.
    }
  }
}

/** Opens a place; what it gives takes a line of JSON. @throws Error when a file cannot be opened */
export function openOutput(output: LogOutput): (json: string, level: LogLevel) => void {
  const { to, file, rotation, watched, level = 'trace' } = output;
  const isTerminal = (to === 'stdout' ? process.stdout : process.stderr).isTTY === true;
  const isText = output.format === 'text' || (output.format === 'auto' && to !== 'file' && isTerminal);
  const color = isText && (to === 'stdout' || to === 'stderr') && isTerminal && !process.env['NO_COLOR'];
  const arranged = isText && output.layout ? compileLayout(output.layout) : undefined;
  const shown = (json: string): string =>
    arranged ? arranged(json) : isText ? readableLine(json, color, to === 'file') : json;
  const send = opened();
  return (json, lineLevel) => {
    if ((rank[lineLevel] ?? 0) >= (rank[level] ?? 0)) send(json, lineLevel);
  };

  function opened(): (json: string, level: LogLevel) => void {
    if (to === 'syslog') {
      const { host = '127.0.0.1', port = 514, facility = 1 } = output;
      const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4').unref();
      // A daemon that is away costs lines, never the server.
      socket.on('error', () => undefined);
      return (json, lineLevel) => {
        const text = `<${facility * 8 + (severities[lineLevel] ?? 6)}>rookery: ${shown(json).trimEnd()}`;
        socket.send(text.slice(0, 8_000), port, host, () => undefined);
      };
    }
    const target =
      file !== undefined && rotation
        ? new RotatingFile(file, rotation)
        : file !== undefined && watched
          ? new WatchedFile(file, isText)
          : new LineWriter(file, isText, to === 'stderr' ? 2 : 1);
    // The journal reads the priority in front of each line.
    if (to === 'journal') return (json, lineLevel) => target.write(`<${severities[lineLevel] ?? 6}>${shown(json)}`);
    return (json) => target.write(shown(json));
  }
}
