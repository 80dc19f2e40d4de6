import { compileSchema } from '@rookery/http';
import { slidingRequestSchema } from './request.js';

describe('the schema of sliding sync', () => {
  const check = compileSchema(slidingRequestSchema);
  const list = { timeline_limit: 1 };

  it.each<[string, object]>([
    ['a connection', { conn_id: 'a\0b' }],
    ['required state', { lists: { a: { ...list, required_state: [['m.x', 'a\0b']] } } }],
    ['required state of a room', { room_subscriptions: { '!a:b': { ...list, required_state: [['a\0b', '']] } } }],
    ['a space', { lists: { a: { ...list, filters: { spaces: ['a\0b'] } } } }],
    ['a type of rooms', { lists: { a: { ...list, filters: { room_types: [null, 'a\0b'] } } } }],
    ['rooms of an extension', { extensions: { receipts: { enabled: true, rooms: ['a\0b'] } } }],
  ])('refuses NUL, which the database may not take, in %s', (_, body) => {
    expect(() => check(body)).toThrow(expect.objectContaining({ status: 400, errcode: 'M_INVALID_PARAM' }));
    expect(() => check(JSON.parse(JSON.stringify(body).replaceAll('\\u0000', '-')))).not.toThrow();
  });
});
