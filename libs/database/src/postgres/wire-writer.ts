import type { SqlValue } from '../database.js';

const startBytes = 16 * 1024;
/** What a message of unusual size made the buffer grow to is not kept. */
const keptBytes = 256 * 1024;

const code = (letter: string): number => letter.charCodeAt(0);
const messages = { parse: code('P'), bind: code('B'), execute: code('E'), sync: code('S') };
const textFormat = 0;
const binaryFormat = 1;
const lengthOfNull = -1;

/** One statement as it is sent. */
export interface WireStatement {
  /** Of a statement that the server is to keep, or keeps already; empty for one that is used once. */
  readonly name: string;
  /** Absent where the server keeps it already. */
  readonly text: string | undefined;
  readonly values: readonly SqlValue[];
}

/**
 * Statements in PostgreSQL's extended protocol, executed one after the other and answered together: an error skips the rest.
 * Nothing asks for the description of rows, so none can be read.
 */
export function writeStatements(statements: readonly WireStatement[]): Buffer {
  at = 0;
  for (const { name, text, values } of statements) {
    if (text !== undefined) {
      const parse = begin(messages.parse);
      cString(name);
      cString(text);
      int16(0);
      end(parse);
    }
    bind(name, values);
    const execute = begin(messages.execute);
    cString('');
    int32(0);
    end(execute);
  }
  end(begin(messages.sync));
  const bytes = Buffer.from(buffer.subarray(0, at));
  if (buffer.length > keptBytes) buffer = Buffer.allocUnsafeSlow(startBytes);
  return bytes;
}

let buffer = Buffer.allocUnsafeSlow(startBytes);
let at = 0;

function ensure(bytes: number): void {
  if (at + bytes <= buffer.length) return;
  const larger = Buffer.allocUnsafeSlow(Math.max(buffer.length * 2, at + bytes));
  buffer.copy(larger, 0, 0, at);
  buffer = larger;
}

/** Begins a message, or with no type something else that its length stands before; where the length will be. */
function begin(type?: number): number {
  ensure(5);
  if (type !== undefined) buffer[at++] = type;
  at += 4;
  return at - 4;
}

/** Ends a message, whose length counts itself. */
const end = (start: number): void => void buffer.writeInt32BE(at - start, start);

function int16(value: number): void {
  ensure(2);
  at = buffer.writeUInt16BE(value, at);
}

function int32(value: number): void {
  ensure(4);
  at = buffer.writeInt32BE(value, at);
}

function characters(value: string): void {
  ensure(value.length * 3);
  at += buffer.write(value, at);
}

function cString(value: string): void {
  characters(value);
  ensure(1);
  buffer[at++] = 0;
}

function bind(statement: string, values: readonly SqlValue[]): void {
  const start = begin(messages.bind);
  cString('');
  cString(statement);
  const hasBytes = values.some((value) => value instanceof Uint8Array);
  int16(hasBytes ? values.length : 0);
  if (hasBytes) for (const value of values) int16(value instanceof Uint8Array ? binaryFormat : textFormat);
  int16(values.length);
  for (const value of values) parameter(value);
  int16(0);
  end(start);
}

function parameter(value: SqlValue | undefined): void {
  if (value === null || value === undefined) int32(lengthOfNull);
  else if (value instanceof Uint8Array) {
    int32(value.length);
    ensure(value.length);
    buffer.set(value, at);
    at += value.length;
  } else {
    const start = begin();
    characters(typeof value === 'string' ? value : Array.isArray(value) ? listText(value) : String(value));
    buffer.writeInt32BE(at - start - 4, start);
  }
}

/** A list as PostgreSQL reads it. A column of lists, or of bytes, gives lists of those. */
function listText(items: readonly (SqlValue | undefined)[]): string {
  let list = '{';
  for (let index = 0; index < items.length; index++) {
    const item = items[index];
    if (index > 0) list += ',';
    if (typeof item === 'string') list += quoted(item);
    else if (item === null || item === undefined) list += 'NULL';
    else if (Array.isArray(item)) list += listText(item);
    else if (item instanceof Uint8Array) list += `"\\\\x${Buffer.from(item).toString('hex')}"`;
    else list += String(item);
  }
  return `${list}}`;
}

function quoted(text: string): string {
  const isPlain = !text.includes('"') && !text.includes('\\');
  return isPlain ? `"${text}"` : `"${text.replace(/["\\]/g, '\\$&')}"`;
}
