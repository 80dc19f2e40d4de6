import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { TestHomeserver } from '@rookery/testing';
import { Dice } from './dice.js';
import { type Example, examples, type Names } from './examples.js';
import type { Route } from './routes.js';
import { brokenBodies, brokenSegments, hostileBody, hostileParameter, hostileValue, toJsonText } from './values.js';
import { Wire, type WireAnswer, type WireRequest } from './wire.js';
import { makeWorld, type World } from './world.js';

/** Longest time that an answer may take. */
const patienceMs = 5_000;
/** How long a request that may wait for news is listened to. */
const waitingPatienceMs = 300;
/** Longest time that one request may keep the process from serving others. */
const longestBlockMs = 200;
/** Requests before the users and their room are replaced by fresh ones. */
const requestsPerWorld = 150;

const methods = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'HEAD', 'OPTIONS'];
const allowedRefusals = new Set([400, 401, 403, 404, 405, 409, 413, 414, 429, 501]);

/** Endpoints that answer late when nothing is new. */
const waits = /\/sync$|\/events$/;
/** Endpoints that answer with pages for browsers. */
const pages = /\/fallback\/web|\/submit_token|\/account_validity\/renew|\/consent|\/sso\/redirect|\/cas\//;

/** What a run was like. */
export interface Report {
  readonly requests: number;
  /** How often each status came. */
  readonly statuses: ReadonlyMap<number, number>;
  /** What must not be, each with the seed that makes it again. */
  readonly offenses: readonly string[];
}

export interface FuzzOptions {
  readonly homeserver: TestHomeserver;
  readonly routes: readonly Route[];
  /** The same seed makes the same requests. */
  readonly seed: string;
  /** How often every route is called. */
  readonly rounds: number;
  /** Rounds end early after this time; one is always made. */
  readonly limitMs: number;
  /** Told of each offense at once. */
  readonly onOffense?: (offense: string) => void;
  /** Told after each round. */
  readonly afterRound?: (round: number, world: World) => Promise<void>;
}

/** Calls every route with hostile input and judges the answers. */
export async function fuzz(options: FuzzOptions): Promise<Report> {
  const { homeserver, routes, seed, rounds, limitMs } = options;
  const wire = new Wire(homeserver.baseUrl);
  const delays = monitorEventLoopDelay({ resolution: 5 });
  const statuses = new Map<number, number>();
  const offenses: string[] = [];
  const startMs = performance.now();
  let requests = 0;
  let world = await makeWorld(homeserver);

  const sendOnce = async (request: WireRequest, mayWait: boolean): Promise<{ answer: WireAnswer; blockMs: number }> => {
    delays.reset();
    delays.enable();
    const answer = await wire.send(request, mayWait ? waitingPatienceMs : patienceMs);
    delays.disable();
    return { answer, blockMs: delays.max / 1e6 };
  };

  for (let round = 0; round < rounds && (round === 0 || performance.now() - startMs < limitMs); round++) {
    for (const route of routes) {
      if (++requests % requestsPerWorld === 0) world = await makeWorld(homeserver);
      const id = `${seed}/${round}/${route.name}`;
      const { request, mayWait, isForeign } = hostileRequest(new Dice(id), route, world);
      let { answer, blockMs } = await sendOnce(request, mayWait);
      // Other programs on the machine block, too: only what blocks each time counts.
      for (let again = 0; again < 2 && blockMs > longestBlockMs; again++) {
        const repeated = await sendOnce(request, mayWait);
        blockMs = Math.min(blockMs, repeated.blockMs);
        answer = answer.status === undefined ? repeated.answer : answer;
      }
      if (answer.status !== undefined) statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
      const problems = wrongWith(route, request, answer, mayWait, isForeign);
      if (blockMs > longestBlockMs) problems.push(`blocked for ${Math.round(blockMs)} ms`);
      for (const problem of problems) {
        const offense = describeOffense(id, request, problem, answer);
        offenses.push(offense);
        options.onOffense?.(offense);
      }
      if (await isSignedOut(answer, request, world, homeserver)) world = await makeWorld(homeserver);
    }
    await options.afterRound?.(round, world);
  }
  wire.close();
  return { requests, statuses, offenses };
}

/** Whether the requests' own user is no longer known: it logged out, or was deactivated. */
async function isSignedOut(
  { status }: WireAnswer,
  { method }: WireRequest,
  { user }: World,
  homeserver: TestHomeserver,
): Promise<boolean> {
  if (status === 401 || (status === 200 && method !== 'GET')) {
    const { status: own } = await homeserver.request('GET', '/account/whoami', undefined, user.accessToken);
    return own !== 200;
  }
  return false;
}

interface Attempt {
  readonly request: WireRequest;
  readonly mayWait: boolean;
  /** It names another server: that one cannot be reached, which may be said. */
  readonly isForeign: boolean;
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
    isForeign: /127\.0\.0\.1|\.invalid|(?:@|!|#|%40|%21|%23).*(?::|%3A)/i.test(`${target}${String(body)}`),
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

/** What is wrong with an answer. */
function wrongWith(
  route: Route,
  { method }: WireRequest,
  { status, headers, text, error }: WireAnswer,
  mayWait: boolean,
  isForeign: boolean,
): string[] {
  if (status === undefined) {
    if (error !== undefined) return [`no answer: ${error}`];
    return mayWait ? [] : [`no answer within ${patienceMs} ms`];
  }
  const problems: string[] = [];
  const unreachable = isForeign && (status === 502 || status === 504);
  if (status >= 400 && !allowedRefusals.has(status) && !unreachable) problems.push(`status ${status}`);
  if (headers['access-control-allow-origin'] !== '*') problems.push('no CORS headers');
  if (status === 204 || method === 'HEAD' || method === 'OPTIONS' || (status >= 300 && status < 400)) return problems;
  const type = String(headers['content-type'] ?? '');
  if (type.startsWith('text/html') && pages.test(route.name)) return problems;
  if (!type.startsWith('application/json')) return [...problems, `content type '${type}'`];
  try {
    const body = JSON.parse(text) as { errcode?: unknown; error?: unknown };
    const isUia = status === 401 && Array.isArray((body as { flows?: unknown }).flows);
    if (status >= 400 && !isUia && (typeof body.errcode !== 'string' || typeof body.error !== 'string'))
      problems.push('no errcode');
    if (text.length > 1_000_000) problems.push(`an answer of ${text.length} characters`);
  } catch {
    problems.push('a body that is no JSON');
  }
  return problems;
}

const shown = (text: string, length: number): string =>
  text.length <= length ? text : `${text.slice(0, length)}… (${text.length})`;

function describeOffense(id: string, request: WireRequest, problem: string, { text }: WireAnswer): string {
  const body = request.body === undefined ? '' : ` ${shown(JSON.stringify(String(request.body)), 600)}`;
  return `[${id}] ${problem}: ${request.method} ${shown(request.target, 400)}${body} → ${shown(text, 300)}`;
}
