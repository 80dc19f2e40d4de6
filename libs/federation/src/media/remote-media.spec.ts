import { fileNameOf } from './remote-media.js';

describe('the name in a Content-Disposition', () => {
  it.each([
    [undefined, undefined],
    ['inline', undefined],
    ['inline; filename=x.png', 'x.png'],
    ['attachment; filename="a b; \\"c\\".txt"', 'a b; "c".txt'],
    ["inline; filename=x; filename*=utf-8''%E2%98%83.txt", '☃.txt'],
    ["inline; filename*=UTF-8'en'%zz; filename=y", 'y'],
    [`inline; filename="${Buffer.from('ü.txt').toString('latin1')}"`, 'ü.txt'],
    [`inline; filename="${'x'.repeat(5_000)}"`, undefined],
  ])('of %s is %s', (header, name) => {
    expect(fileNameOf(header)).toBe(name);
  });
});
