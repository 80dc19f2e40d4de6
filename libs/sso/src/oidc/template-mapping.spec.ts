import { ConfigError } from '@rookery/module-api';
import { templateMapping } from './template-mapping.js';

const map = (config: unknown, user: Record<string, unknown>, failures = 0) =>
  templateMapping(config).mapUserAttributes(user, {}, failures);

it('takes the subject that is meant, and none where there is none', () => {
  expect(templateMapping(undefined).getRemoteUserId({ sub: 'abc' })).toBe('abc');
  expect(
    templateMapping({ subject_template: '{{ user.id }}-{{ user.org }}' }).getRemoteUserId({ id: 7, org: 'x' }),
  ).toBe('7-x');
  expect(templateMapping({ subject_claim: 'id' }).getRemoteUserId({ id: 7, sub: 'abc' })).toBe('7');
  for (const claims of [{}, { sub: null }, { sub: '' }, { sub: '  ' }])
    expect(templateMapping({}).getRemoteUserId(claims)).toBe('');
  // An object is nobody's id.
  expect(templateMapping({ subject_claim: 'id' }).getRemoteUserId({ id: {} })).toBe('');
});

it('makes names valid, and others where they are taken', async () => {
  const config = { localpart_template: '{{ user.email|localpart_from_email }}' };
  expect(await map(config, { email: 'Jörg K@x.example' })).toMatchObject({ localpart: 'j=c3=b6rg=20k' });
  expect(await map(config, { email: 'anna@x.example' }, 3)).toMatchObject({ localpart: 'anna3' });
  expect(await map(config, {})).toMatchObject({ localpart: undefined });
  expect(await map({}, { name: 'x' })).toMatchObject({ localpart: undefined, confirmLocalpart: false });
});

it('takes name, address, picture and what else is asked for', async () => {
  const config = {
    confirm_localpart: true,
    display_name_template: '{{ user.given }} {{ user.family }}',
    email_template: '{{ user.email }}',
    picture_claim: 'photo',
    extra_attributes: { 'org.example.a': '{{ user.a }}!' },
  };
  const user = { given: '<b>', family: '& co', email: 'a@b.example', photo: 'https://x.example/p', a: 1 };
  expect(await map(config, user)).toEqual({
    localpart: undefined,
    confirmLocalpart: true,
    displayName: '<b> & co',
    picture: 'https://x.example/p',
    emails: ['a@b.example'],
  });
  expect(await map(config, { ...user, email_verified: false })).toMatchObject({ emails: [] });
  expect(await map(config, { given: null })).toMatchObject({ displayName: undefined, emails: [] });
  expect(await templateMapping(config).getExtraAttributes?.(user, {})).toEqual({ 'org.example.a': '1!' });
});

it.each<[unknown, (string | number)[]]>([
  [7, []],
  [[], []],
  [{ other: 1 }, ['other']],
  [{ localpart_template: 7 }, ['localpart_template']],
  [{ localpart_template: '{{' }, ['localpart_template']],
  [{ subject_claim: '' }, ['subject_claim']],
  [{ confirm_localpart: 'yes' }, ['confirm_localpart']],
  [{ extra_attributes: [] }, ['extra_attributes']],
  [{ extra_attributes: { a: '{% if %}' } }, ['extra_attributes', 'a']],
])('points to what is wrong in %j', (config, path) => {
  let thrown: unknown;
  try {
    templateMapping(config);
  } catch (error) {
    thrown = error;
  }
  expect(ConfigError.is(thrown) && thrown.path).toEqual(path);
});
