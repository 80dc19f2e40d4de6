import { judgeInvite } from './invite-permissions.js';

const nice = '@nice:good.org';
const spammer = '@spammer:bad.example:8448';

describe('filters of invites', () => {
  it.each([
    ['nothing', {}, nice, 'allow'],
    ['a blocked user', { blocked_users: [spammer] }, spammer, 'block'],
    ['somebody else', { blocked_users: [spammer] }, nice, 'allow'],
    ['a glob', { blocked_users: ['@spam*:*'] }, spammer, 'block'],
    ['a single character', { blocked_users: ['@nic?:good.org'] }, nice, 'block'],
    ['all of a server, whatever its port', { blocked_servers: ['bad.example'] }, spammer, 'block'],
    ['an ignored server', { ignored_servers: ['*.org'] }, nice, 'ignore'],
    ['everybody', { blocked_servers: ['*'] }, nice, 'block'],
    ['one server only', { allowed_servers: ['good.org'], blocked_servers: ['*'] }, nice, 'allow'],
    ['a user allowed from a blocked server', { allowed_users: [spammer], blocked_servers: ['*'] }, spammer, 'allow'],
    ['a user blocked on an allowed server', { blocked_users: [nice], allowed_servers: ['good.org'] }, nice, 'block'],
    ['allowed before ignored', { allowed_users: ['*'], ignored_users: [nice] }, nice, 'allow'],
    ['ignored before blocked', { ignored_users: [nice], blocked_users: ['*'] }, nice, 'ignore'],
    ['ignored servers before blocked ones', { ignored_servers: ['*'], blocked_servers: ['*'] }, nice, 'ignore'],
    ['what is switched off', { enabled: false, blocked_users: ['*'] }, nice, 'allow'],
    ['a switch that is no switch', { enabled: 'false', blocked_users: ['*'] }, nice, 'block'],
    ['nonsense', { blocked_users: [1, null, {}, '*'.repeat(300)], blocked_servers: '*' }, nice, 'allow'],
    ['more than it reads', { blocked_users: [...Array(1_000).fill('@x:y'), '*'] }, nice, 'allow'],
  ])('know %s', (_, filters, inviter, verdict) => {
    expect(judgeInvite(filters, inviter)).toBe(verdict);
  });

  it('take a short time, whatever they hold', () => {
    const filters = Object.fromEntries(
      ['allowed_users', 'ignored_users', 'blocked_users'].map((name) => [name, Array(50_000).fill('*a'.repeat(127))]),
    );
    const startedMs = performance.now();
    expect(judgeInvite(filters, `@${'a'.repeat(200)}b:server`)).toBe('allow');
    expect(performance.now() - startedMs).toBeLessThan(10_000);
  });
});
