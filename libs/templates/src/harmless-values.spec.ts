import { harmless, inOneLine } from './harmless-values.js';

describe('values of templates', () => {
  it('are names in one line, and messages in several', () => {
    expect(
      harmless({
        display_name: ' Bob\r\nBcc: x\u2028\u0085y\0',
        room: {
          title: 'A\nB',
          notifs: [{ messages: [{ sender_name: 'C\nD', body_text_plain: 'one\r\ntwo\n\tthree\0' }] }],
        },
        expiration_ts: 5,
        none: null,
        list: ['a\nb'],
      }),
    ).toEqual({
      display_name: 'Bob Bcc: x y',
      room: { title: 'A B', notifs: [{ messages: [{ sender_name: 'C D', body_text_plain: 'one\ntwo\n\tthree' }] }] },
      expiration_ts: 5,
      none: null,
      list: ['a b'],
    });
  });

  it('run in their own direction', () => {
    expect(inOneLine('photo\u202egpj.exe')).toBe('photogpj.exe');
    expect(harmless({ body_text_html: '<b>\u2067x\u2069</b>' })).toEqual({ body_text_html: '<b>x</b>' });
    // What a language needs stays: marks that turn nothing around, and letters that run to the left.
    expect(inOneLine('\u05e9\u05dc\u05d5\u05dd\u200f (1)')).toBe('\u05e9\u05dc\u05d5\u05dd\u200f (1)');
  });

  it('may be nested as deeply as they like', () => {
    let deep: unknown = 'x';
    for (let depth = 0; depth < 50_000; depth++) deep = { deep };
    expect(() => harmless({ deep })).not.toThrow();
  });
});
