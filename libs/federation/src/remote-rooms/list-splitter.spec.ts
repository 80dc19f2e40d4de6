import { randomFrom } from '../../../../test/support/random.js';
import { ListSplitter } from './list-splitter.js';

const limits = { maxBytes: 1_000, maxElements: 100 };
const lists = new Set(['pdus', 'auth_chain']);

/** The lists of a text that comes in pieces, each element parsed by itself, and where each lay. */
function split(
  text: string | Buffer,
  pieces: (length: number) => number[],
  bounds = limits,
): Record<string, unknown[]> {
  const bytes = Buffer.from(text);
  const splitter = new ListSplitter(lists, bounds);
  const found: Record<string, unknown[]> = { pdus: [], auth_chain: [] };
  let from = 0;
  for (const length of [...pieces(bytes.length), Infinity]) {
    const piece = Buffer.from(bytes.subarray(from, from + length));
    for (const element of splitter.push(piece)) {
      expect(bytes.subarray(element.at, element.at + element.bytes.length)).toEqual(element.bytes);
      found[element.list]!.push(JSON.parse(element.bytes.toString()));
    }
    from += length;
    if (from >= bytes.length) break;
  }
  splitter.end();
  return found;
}

const whole = (): number[] => [];
const bytewise = (length: number): number[] => new Array<number>(length).fill(1);

describe('lists of an object that arrives in pieces', () => {
  it('come out element by element', () => {
    const text =
      ' {"origin" : "a\\"]}", "pdus":[{"a":["}",{"é€😀":"\\\\"}]}, 1 ,"x,]",null,[[]]] ,"n":-1.5e3,"auth_chain":[ ],"o":{"pdus":[7]}}\n';
    const { pdus, auth_chain } = JSON.parse(text) as Record<string, unknown[]>;
    for (const pieces of [whole, bytewise]) expect(split(text, pieces)).toEqual({ pdus, auth_chain });
    expect(split('﻿{"pdus":[1],"auth_chain":[2]}', bytewise)).toEqual({ pdus: [1], auth_chain: [2] });
  });

  it.each([
    ['no object', '[]'],
    ['nothing', ''],
    ['an end too early', '{"pdus":[1'],
    ['a list that is none', '{"pdus":{},"auth_chain":[]}'],
    ['a list that is missing', '{"pdus":[]}'],
    ['a key twice', '{"pdus":[],"pdus":[1],"auth_chain":[]}'],
    ['two commas', '{"pdus":[1,,2],"auth_chain":[]}'],
    ['a comma at the end', '{"pdus":[1,],"auth_chain":[]}'],
    ['something behind the end', '{"pdus":[],"auth_chain":[]}x'],
    ['brackets that do not fit', '{"pdus":[{"a":[}]],"auth_chain":[]}'],
    ['another value that is none', '{"x":{"a"},"pdus":[],"auth_chain":[]}'],
  ])('are refused: %s', (_, text) => {
    for (const pieces of [whole, bytewise]) expect(() => split(text, pieces)).toThrow(SyntaxError);
  });

  it('are refused where they are no UTF-8', () => {
    const text = Buffer.from('{"pdus":["?"],"auth_chain":[]}');
    text[text.indexOf('?')] = 0xff;
    expect(() => split(text, bytewise)).toThrow(SyntaxError);
  });

  it('are bounded', () => {
    const long = JSON.stringify({ pdus: ['x'.repeat(1_000)], auth_chain: [] });
    const many = JSON.stringify({ pdus: new Array(60).fill(0), auth_chain: new Array(41).fill(0) });
    const besides = JSON.stringify({ more: 'x'.repeat(1_000), pdus: [], auth_chain: [] });
    for (const text of [long, many, besides])
      for (const pieces of [whole, bytewise]) expect(() => split(text, pieces)).toThrow(RangeError);
    const keys = JSON.stringify(Object.fromEntries(Array.from({ length: 101 }, (_, n) => [`key${n}`, n])));
    expect(() => split(keys, whole)).toThrow(RangeError);
  });

  it('are what JSON.parse makes of the whole, and refused where it refuses it', () => {
    const letters = [
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"',
      '\\',
      ' ',
      '1',
      'e',
      '-',
      'true',
      '"a"',
      '"pdus":',
      '\u0001',
      'é',
    ];
    let refused = 0;
    for (let seed = 1; seed <= 3_000; seed++) {
      const random = randomFrom(seed);
      const roll = (below: number): number => Math.floor(random() * below);
      const value = (depth: number): unknown => {
        const kind = roll(depth > 3 ? 4 : 6);
        if (kind === 0) return roll(1_000) - 500;
        if (kind === 1) return ['', 'a"b', '\\', '{[,:]}', 'é😀', '\n'][roll(6)];
        if (kind === 2) return roll(2) === 0;
        if (kind === 3) return null;
        const inner = Array.from({ length: roll(4) }, () => value(depth + 1));
        return kind === 4 ? inner : Object.fromEntries(inner.map((each, n) => [`k${n}"`, each]));
      };
      const list = (): unknown[] => Array.from({ length: roll(5) }, () => value(0));
      let text = JSON.stringify({ first: value(0), pdus: list(), auth_chain: list(), last: value(0) }, null, roll(2));
      // Most of them are damaged at one place.
      if (seed % 3 > 0) {
        const at = roll(text.length + 1);
        text = (text.slice(0, at) + letters[roll(letters.length)]! + text.slice(at + roll(3))).toWellFormed();
      }
      const pieces = (length: number): number[] => Array.from({ length }, () => 1 + roll(9));
      let parsed: Record<string, unknown> | undefined;
      try {
        parsed = JSON.parse(text) as Record<string, unknown>;
      } catch {
        refused++;
      }
      const isSplit = parsed !== undefined && [...lists].every((key) => Array.isArray(parsed[key]));
      if (!isSplit) expect(() => split(text, pieces, { ...limits, maxBytes: 1e6 })).toThrow(SyntaxError);
      else
        expect(split(text, pieces, { ...limits, maxBytes: 1e6 })).toEqual({
          pdus: parsed!['pdus'],
          auth_chain: parsed!['auth_chain'],
        });
    }
    expect(refused).toBeGreaterThan(500);
  });
});
