import { contentDisposition, servedType } from '../downloads/content-disposition.js';
import { rangeOf } from '../http/file-reply.js';
import { mediaInContent } from '../moderation/media-in-content.js';
import { placeOf, thumbnailPlace } from '../storage/file-place.js';
import { pathBelow } from '../storage/file-system-provider.js';
import { claimedType } from '../uploads/incoming-file.js';
import { isValidMediaId, isValidMediaServer, parseMxc } from './media.js';

describe('media URIs', () => {
  it.each([
    ['mxc://example.org/abc', { origin: undefined, mediaId: 'abc' }],
    ['mxc://example.org/abc?x=y#z', { origin: undefined, mediaId: 'abc' }],
    ['mxc://other.example:8448/a-b_c', { origin: 'other.example:8448', mediaId: 'a-b_c' }],
    ['mxc://[::1]:80/x', { origin: '[::1]:80', mediaId: 'x' }],
    ['mxc://../x', undefined],
    ['mxc://./x', undefined],
    ['mxc://example.org/..', undefined],
    ['mxc://example.org/a/b', undefined],
    ['mxc://example.org/', undefined],
    ['mxc://exa mple/x', undefined],
    ['https://example.org/x', undefined],
    [`mxc://example.org/${'x'.repeat(2_000)}`, undefined],
    [7, undefined],
    [undefined, undefined],
  ])('%s', (uri, expected) => {
    expect(parseMxc(uri, 'example.org')).toEqual(expected);
  });

  it('never name what means something in a path', () => {
    for (const bad of ['', '.', '..', 'a/b', 'a\\b', 'a.b', 'ä', 'a\0', 'a'.repeat(256)])
      expect(isValidMediaId(bad)).toBe(false);
    for (const bad of ['', '.', '..', '...', '../x', 'a/b', 'a\0b', '%2e%2e'])
      expect(isValidMediaServer(bad)).toBe(false);
    expect(() => pathBelow('/store', '../etc/passwd')).toThrow();
    expect(() => pathBelow('/store', '/etc/passwd')).toThrow();
    expect(() => pathBelow('/store', '')).toThrow();
    expect(pathBelow('/store', 'a/b')).toBe('/store/a/b');
  });
});

it('files lie where the field has them', () => {
  const thumbnail = { widthPx: 32, heightPx: 16, method: 'scale', type: 'image/png', sizeBytes: 1 } as const;
  const paths = (origin: string | undefined, fileId: string, urlCache?: string): string[] => {
    const file = { origin, fileId, urlCache };
    return [placeOf(file).path, thumbnailPlace(file, thumbnail).path];
  };
  expect(paths(undefined, 'abcdefgh')).toEqual([
    'local_content/ab/cd/efgh',
    'local_thumbnails/ab/cd/efgh/32-16-image-png-scale',
  ]);
  expect(paths('x.example', 'abcdefgh')).toEqual([
    'remote_content/x.example/ab/cd/efgh',
    'remote_thumbnail/x.example/ab/cd/efgh/32-16-image-png-scale',
  ]);
  expect(paths(undefined, '2026-11-20_abcdefgh', 'https://x.example')).toEqual([
    'url_cache/2026-11-20/abcdefgh',
    'url_cache_thumbnails/2026-11-20/abcdefgh/32-16-image-png-scale',
  ]);
  expect(paths(undefined, 'abcdefgh', 'https://x.example')[0]).toBe('url_cache/ab/cd/efgh');
});

it.each([
  ['image/png', 'image/png'],
  [' text/plain; charset="utf 8" ', 'text/plain; charset="utf 8"'],
  [undefined, 'application/octet-stream'],
  ['', 'application/octet-stream'],
  ['image', 'application/octet-stream'],
  ['text/html\r\nx: y', 'application/octet-stream'],
  ['text/html, image/png', 'application/octet-stream'],
  [`a/${'b'.repeat(300)}`, 'application/octet-stream'],
])('the claimed type %j is %s', (claimed, expected) => {
  expect(claimedType(claimed)).toBe(expected);
});

it('what browsers could run is an attachment', () => {
  for (const type of [
    'text/html',
    'image/svg+xml',
    'application/xhtml+xml',
    'text/javascript',
    'application/pdf',
    'text/xml',
    'text/html;image/png',
    '',
  ])
    expect(contentDisposition(type, undefined)).toBe('attachment');
  for (const type of ['image/png', 'video/mp4; codecs=x', 'TEXT/PLAIN', 'audio/ogg'])
    expect(contentDisposition(type, undefined)).toBe('inline');
  expect(contentDisposition('image/png', 'x\ud800')).toBe("inline; filename*=utf-8''x%EF%BF%BD");
  expect(servedType('text/css')).toBe('text/css; charset=UTF-8');
  expect(servedType('image/png')).toBe('image/png');
});

it.each([
  ['bytes=0-0', 10, { start: 0, end: 0 }],
  ['bytes=5-', 10, { start: 5, end: 9 }],
  ['bytes=5-100', 10, { start: 5, end: 9 }],
  ['bytes=-4', 10, { start: 6, end: 9 }],
  ['bytes=-40', 10, { start: 0, end: 9 }],
  ['bytes=-0', 10, 'none'],
  ['bytes=10-', 10, 'none'],
  ['bytes=0-', 0, 'none'],
  ['bytes=5-3', 10, undefined],
  ['bytes=-', 10, undefined],
  ['bytes=0-1,2-3', 10, undefined],
  ['items=0-1', 10, undefined],
  [undefined, 10, undefined],
])('the range %s of %d bytes', (header, size, expected) => {
  expect(rangeOf(header, size)).toEqual(expected);
});

it('events show their file and its thumbnail, unless they are encrypted', () => {
  expect(mediaInContent({ url: 'mxc://x/1', info: { thumbnail_url: 'mxc://x/2' } })).toEqual([
    'mxc://x/1',
    'mxc://x/2',
  ]);
  expect(mediaInContent({ url: 'https://x/1', info: [] })).toEqual([]);
  expect(mediaInContent({ file: { url: 'mxc://x/1' } })).toEqual([]);
  expect(mediaInContent({ url: 7, info: null })).toEqual([]);
});
