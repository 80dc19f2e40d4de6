import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { itWhere } from '@rookery/testing';
import { parse } from 'yaml';
import { specificationFolder } from '../../../../test/support/specification.js';
import { contentOf, typesWithContent } from './event-contents.js';

const event = (type: string, content: Record<string, unknown>): Parameters<typeof contentOf>[0] => ({ type, content });

it('gives contents their types, and nothing for another event or what is not as it should be', () => {
  const member = contentOf(event('m.room.member', { membership: 'join', displayname: null, x: 1 }), 'm.room.member');
  const membership: 'invite' | 'join' | 'knock' | 'leave' | 'ban' | undefined = member?.membership;
  const name: string | null | undefined = member?.displayname;
  expect([membership, name]).toEqual(['join', null]);
  expect(contentOf(event('m.room.member', { membership: 'joined' }), 'm.room.member')).toBeUndefined();
  expect(contentOf(event('m.room.member', {}), 'm.room.member')).toBeUndefined();
  expect(contentOf(event('m.room.message', { membership: 'join' }), 'm.room.member')).toBeUndefined();
  expect(contentOf(event('m.room.message', { msgtype: 'm.text', body: 7 }), 'm.room.message')).toBeUndefined();
  const levels = contentOf(event('m.room.power_levels', { users: { '@a:b': 50 } }), 'm.room.power_levels');
  expect(levels?.users?.['@a:b']).toBe(50);
  expect(contentOf(event('m.room.power_levels', { users: { '@a:b': 1.5 } }), 'm.room.power_levels')).toBeUndefined();
  expect(contentOf(event('__proto__', {}), '__proto__' as 'm.tag')).toBeUndefined();
});

const folder = specificationFolder();
const data = join(folder ?? '', 'event-schemas');
const withData = itWhere(folder !== undefined, "the specification's data are not beside the checkout");

/** What only devices and servers send each other, which no module sees. */
const unseen =
  /^m\.(?:key\.|room_key|forwarded_room_key|secret\.|dummy|typing|receipt|presence)|^m\.room\.message\$|^m\.key_backup/;

withData('knows every event and all account data of the specification', () => {
  const known = readdirSync(join(data, 'schema'))
    .filter((file) => file.endsWith('.yaml'))
    .map((file) => file.slice(0, -'.yaml'.length))
    .filter((type) => !unseen.test(type));
  expect(known.filter((type) => !(typesWithContent as readonly string[]).includes(type))).toEqual([]);
});

withData("takes the specification's own examples", () => {
  const refused: string[] = [];
  let taken = 0;
  for (const file of readdirSync(join(data, 'examples')).filter((one) => one.endsWith('.yaml'))) {
    const { type, content } = parse(readFileSync(join(data, 'examples', file), 'utf8')) as {
      type?: string;
      content: Record<string, unknown>;
    };
    // The data name what they build upon beside what they say.
    const named = type ?? file.slice(0, -'.yaml'.length).split('$')[0] ?? '';
    if (!(typesWithContent as readonly string[]).includes(named)) continue;
    if (contentOf(event(named, content), named as 'm.tag') === undefined) refused.push(file);
    else taken += 1;
  }
  expect(refused).toEqual([]);
  expect(taken).toBeGreaterThan(40);
});
