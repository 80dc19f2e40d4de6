import { compileEventFields } from './event-fields.js';

const event = { type: 't', sender: '@a:b', content: { body: 'x', 'a.b': { c: 1 }, list: [1] } };

describe('event_fields', () => {
  it.each<[string[], object]>([
    [['type'], { type: 't' }],
    [['content.body', 'sender'], { sender: '@a:b', content: { body: 'x' } }],
    [['content.a\\.b.c'], { content: { 'a.b': { c: 1 } } }],
    [['content.body', 'content.list'], { content: { body: 'x', list: [1] } }],
    [['content.missing', 'nothing'], {}],
    [['content.list.0'], {}],
    [['constructor', '__proto__.x'], {}],
    [['content', 'content.body'], { content: event.content }],
    [['content.body', 'content'], { content: event.content }],
    [[], {}],
  ])('%j', (fields, expected) => {
    expect(compileEventFields(fields)?.(event)).toEqual(expected);
  });

  it('keeps everything where none are named', () => {
    expect(compileEventFields(undefined)).toBeUndefined();
  });
});
