import { Readable } from 'node:stream';
import { boundaryOf, MultipartError, MultipartReader } from './multipart.js';

async function partsOf(bytes: Buffer, boundary: string, chunkSize: number): Promise<[object, string][]> {
  const chunks: Buffer[] = [];
  for (let i = 0; i < bytes.length; i += chunkSize) chunks.push(bytes.subarray(i, i + chunkSize));
  const reader = new MultipartReader(Readable.from(chunks), boundary);
  const parts: [object, string][] = [];
  for (let part = await reader.next(); part !== undefined; part = await reader.next()) {
    const body: Buffer[] = [];
    for await (const chunk of part.body) body.push(chunk);
    parts.push([Object.fromEntries(part.headers), Buffer.concat(body).toString('latin1')]);
  }
  return parts;
}

const typical = Buffer.from(
  'a preamble\r\n--b\r\nContent-Type: application/json\r\n\r\n{}\r\n--b\r\nContent-Type:image/png\r\nX: y: z\r\n\r\n' +
    '\r\n-\r\n--\r\n--c bytes\0\xff\r\n\r\n--b--\r\nan epilogue',
  'latin1',
);

describe('multipart', () => {
  it.each([1, 2, 3, 7, 16, 1000])('is taken apart whatever the chunks are (%d bytes)', async (chunkSize) => {
    expect(await partsOf(typical, 'b', chunkSize)).toEqual([
      [{ 'content-type': 'application/json' }, '{}'],
      [{ 'content-type': 'image/png', x: 'y: z' }, '\r\n-\r\n--\r\n--c bytes\0\xff\r\n'],
    ]);
  });

  it('knows parts without headers and without content, and a delimiter at the beginning', async () => {
    const bytes = Buffer.from('--b\r\n\r\nx\r\n--b\r\nA: 1\r\n\r\n\r\n--b--');
    expect(await partsOf(bytes, 'b', 4)).toEqual([
      [{}, 'x'],
      [{ a: '1' }, ''],
    ]);
  });

  it.each([
    ['nothing', ''],
    ['no delimiter', 'x'.repeat(100_000)],
    ['endless headers', `--b\r\nA: ${'x'.repeat(100_000)}`],
    ['no end of headers', '--b\r\nA: 1\r\n'],
    ['no end', '--b\r\nA: 1\r\n\r\nbody\r\n--'],
    ['half an end', '--b\r\nA: 1\r\n\r\nbody\r\n--b'],
  ])('fails on %s', async (_, text) => {
    await expect(partsOf(Buffer.from(text), 'b', 1_000)).rejects.toThrow(MultipartError);
  });

  it('keeps little of a large part in memory', async () => {
    let largest = 0;
    let total = 0;
    function* source(): Generator<Buffer> {
      yield Buffer.from('--b\r\n\r\n');
      for (let i = 0; i < 500; i++) yield Buffer.alloc(10_000, 0x2d);
      yield Buffer.from('\r\n--b--');
    }
    const part = await new MultipartReader(Readable.from(source()), 'b').next();
    for await (const chunk of part!.body) {
      largest = Math.max(largest, chunk.length);
      total += chunk.length;
    }
    expect([total, largest < 20_000]).toEqual([5_000_000, true]);
  });

  it('finds its boundary in the content type', () => {
    expect(boundaryOf('multipart/mixed; boundary=abc')).toBe('abc');
    expect(boundaryOf('Multipart/Mixed; charset=x; Boundary="a b:c"')).toBe('a b:c');
    for (const text of ['', 'text/plain; boundary=x', 'multipart/mixed', 'multipart/mixed; boundary=""']) {
      expect(boundaryOf(text)).toBeUndefined();
    }
    for (const quote of ['', '"'])
      expect(boundaryOf(`multipart/mixed; boundary=${quote}${'x'.repeat(71)}${quote}`)).toBeUndefined();
  });
});
