import type { Dice } from './dice.js';
import { type Example, examples, type Names } from './examples.js';
import type { Route } from './routes.js';
import {
  brokenBodies,
  brokenSegments,
  damagedCopies,
  dangerousTexts,
  hostileBody,
  hostileParameter,
  hostileValue,
  toJsonText,
} from './values.js';
import type { WireRequest } from './wire.js';
import type { World } from './world.js';

const methods = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'HEAD', 'OPTIONS'];
/** Endpoints that answer late when nothing is new. */
const waits = /\/sync$|\/events$/;
/** Names of other servers, ids and media of theirs. */
const foreign =
  /127\.0\.0\.1|\.invalid|\/media\/(?:\w+\/)?(?:download|thumbnail)\/(?!rookery\.test\/)|(?:[@!#$]|%40|%21|%23|%24)[^"/?&:%]*(?::|%3A)(?!rookery\.test)[\w[]/i;

/** A request with what may become of it. */
export interface Attempt {
  readonly request: WireRequest;
  readonly mayWait: boolean;
  /** It names another server: that one cannot be reached, which may be said. */
  readonly isRemote: boolean;
}

/** A request with at least one thing wrong, mostly. */
export function hostileRequest(dice: Dice, route: Route, { names, tokens }: World, where?: string): Attempt {
  const { body: right, query = {} } = (examples[route.name]?.(names) ?? {}) as Example;
  const inBody = route.method !== 'GET';
  const path = dice.pick(route.paths);
  const parameters = path.match(/:\w+/g)?.length ?? 0;
  // One place gets the hostile input, so that the request comes far enough; now and then all of them.
  const places = [
    'query',
    ...(inBody ? ['body', 'body', 'body', 'body'] : ['query']),
    ...(parameters > 0 ? ['path', 'path'] : []),
    'all',
    'broken',
  ];
  const place = where ?? dice.pick(places);
  const hits = (name: string): boolean => place === name || place === 'all';

  const method = place === 'broken' && dice.chance(0.3) ? dice.pick(methods) : route.method;
  const whichParameter = dice.below(Math.max(1, parameters));
  let index = 0;
  const target =
    path.replace(/:\w+/g, (name) => {
      const hit = hits('path') && (index === whichParameter || dice.chance(0.2));
      index += 1;
      return hit ? hostileSegment(dice, names) : encodeURIComponent(rightSegment(dice, name.slice(1), names));
    }) + queryText(dice, query, hits('query'), names);

  const who = dice.pick([
    'user',
    'user',
    'user',
    'user',
    'user',
    'admin',
    'other',
    'guest',
    'suspended',
    'nobody',
    'foreign',
  ]);
  const token = tokens[who];
  const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` };
  let body: string | Buffer | undefined;
  if (method !== 'GET' && method !== 'HEAD') {
    headers['content-type'] = dice.chance(0.9) ? 'application/json' : dice.pick(['text/plain', 'image/png', 'x', '']);
    if (place === 'broken') body = dice.pick(brokenBodies);
    else if (inBody && (right !== undefined || route.method !== 'DELETE' || hits('body')))
      body = toJsonText(hits('body') ? hostileBody(dice, right, names) : (right ?? {}));
  }
  return {
    request: { method, target, headers, body },
    mayWait: waits.test(path),
    isRemote: foreign.test(`${target}${String(body)}`),
  };
}

function hostileSegment(dice: Dice, names: Names): string {
  if (dice.chance(0.3)) return dice.pick(brokenSegments);
  const value = hostileValue(dice, names);
  const text = typeof value === 'string' ? value : toJsonText(value);
  // Text that cannot be written in a URL becomes something near it.
  return encodeURIComponent(text.slice(0, 700).toWellFormed());
}

function rightSegment(dice: Dice, name: string, names: Names): string {
  switch (name) {
    case 'userId':
      return dice.chance(0.8) ? names.userId : names.otherUserId;
    case 'roomId':
      return names.roomId;
    case 'roomIdOrAlias':
      return dice.chance(0.5) ? names.roomId : names.alias;
    case 'roomAlias':
      return names.alias;
    case 'eventId':
      return names.eventId;
    case 'deviceId':
      return names.deviceId;
    case 'filterId':
      return names.filterId;
    case 'delayId':
      return names.delayId;
    case 'version':
      return names.backupVersion;
    case 'relType':
      return dice.pick(['m.thread', 'm.annotation', 'm.replace', 'm.reference']);
    case 'receiptType':
      return dice.pick(['m.read', 'm.read.private', 'm.fully_read']);
    case 'eventType':
      return dice.pick([
        ...['m.room.message', 'm.room.member', 'm.room.power_levels', 'm.room.join_rules', 'm.room.canonical_alias'],
        ...['m.room.history_visibility', 'm.room.encryption', 'm.room.name', 'm.room.server_acl', 'm.room.redaction'],
        ...['m.room.create', 'm.room.third_party_invite', 'm.room.tombstone', 'm.space.child', 'm.reaction', 'x.y'],
        'm.room_key_request',
      ]);
    case 'stateKey':
      return dice.pick(['', names.userId, names.otherUserId, names.roomId, 'x']);
    case 'type':
      return dice.pick(['m.ignored_user_list', 'm.direct', 'm.push_rules', 'm.fully_read', 'm.tag', 'x.y']);
    case 'scope':
      return 'global';
    case 'kind':
      return dice.pick(['override', 'content', 'room', 'sender', 'underride']);
    case 'ruleId':
      return dice.pick(['own', '.m.rule.master', '.m.rule.contains_display_name', names.roomId, names.userId]);
    case 'field':
      return dice.pick(['displayname', 'avatar_url', 'm.tz', 'custom']);
    case 'stage':
      return dice.pick(['m.login.recaptcha', 'm.login.terms', 'm.login.registration_token', 'm.login.sso']);
    case 'txnId':
      return `t${dice.below(1_000_000)}`;
    default:
      return dice.pick(['x', 'm.favourite', '1']);
  }
}

function queryText(dice: Dice, right: Readonly<Record<string, string>>, isHit: boolean, names: Names): string {
  // What must be there mostly is; made-up tokens mostly are not.
  const entries = Object.entries(right).filter(([, value]) => dice.chance(value === 'x' ? 0.15 : 0.85));
  const pairs = entries.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
  if (isHit) {
    const known = [
      ...Object.keys(right),
      'limit',
      'from',
      'user_id',
      'access_token',
      'ts',
      'timeout',
      'org.matrix.msc4140.delay',
      'server_name',
      'via',
      'format',
    ];
    for (let left = dice.pick([1, 1, 2]); left > 0; left--) {
      const name = dice.pick(known);
      const value = encodeURIComponent(hostileParameter(dice, name, names).toWellFormed()).slice(0, 9_000);
      const pair = `${encodeURIComponent(name)}=${value.replace(/%[\dA-F]?$/, '')}`;
      const at = pairs.findIndex((one) => one.startsWith(`${encodeURIComponent(name)}=`));
      if (at >= 0 && dice.chance(0.8)) pairs[at] = pair;
      else pairs.push(pair);
    }
    if (dice.chance(0.1)) pairs.push(...pairs);
    if (dice.chance(0.05))
      pairs.push(dice.pick(['%', '&&&', '=', '__proto__=1', 'constructor=1', 'a[b]=c', '%ff=1', 'x=%00']));
    if (dice.chance(0.02)) pairs.push(...Array.from({ length: 500 }, (_, i) => `k${i}=1`));
  }
  return pairs.length === 0 ? '' : `?${pairs.join('&')}`;
}

/** A right request with one thing wrong: every field, key, query parameter and part of the path in turn. */
export function* sweepRequests(dice: Dice, route: Route, world: World): Generator<Attempt> {
  const { names, tokens } = world;
  const { body, query = {} } = (examples[route.name]?.(names) ?? {}) as Example;
  const path = route.paths[0]!;
  const token = (/^\w+ \/admin\//.test(route.name) ? tokens['admin'] : tokens['user']) ?? '';
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const right = path.replace(/:\w+/g, (name) => encodeURIComponent(rightSegment(dice, name.slice(1), names)));
  const rightQuery = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== 'x')).toString();
  const attempt = (target: string, text: string | undefined): Attempt => ({
    request: { method: route.method, target, headers, body: text },
    mayWait: waits.test(path),
    isRemote: foreign.test(`${target}${String(text)}`),
  });
  const rightBody =
    route.method === 'GET' || (route.method === 'DELETE' && body === undefined) ? undefined : toJsonText(body ?? {});
  if (rightBody !== undefined && body !== undefined)
    for (const text of damagedCopies(body)) yield attempt(`${right}?${rightQuery}`, text);
  for (const name of Object.keys(query)) {
    for (const text of dangerousTexts) {
      const wrong = new URLSearchParams(rightQuery);
      wrong.set(name, text);
      yield attempt(`${right}?${wrong.toString()}`, rightBody);
    }
  }
  const parts = path.split('/');
  for (const [index, part] of parts.entries()) {
    if (!part.startsWith(':')) continue;
    const segments = right.split('/');
    for (const text of [...dangerousTexts.map((one) => encodeURIComponent(one)), ...brokenSegments]) {
      segments[index] = text;
      yield attempt(`${segments.join('/')}?${rightQuery}`, rightBody);
    }
  }
}
