import { ConfigError, mapUsernameToMxidLocalpart, MatrixError, type SamlMappingProvider } from '@rookery/module-api';

/** Everything that a localpart may not hold becomes a dot. */
const dotReplace = (name: string): string =>
  name
    .toLowerCase()
    .replace(/[^a-z0-9_./=-]/g, '.')
    .replace(/^_/, '');

/**
 * The built-in mapping: one attribute becomes the localpart.
 * @throws ConfigError naming what is wrong
 */
export function attributeMapping(raw: unknown): SamlMappingProvider {
  const given = (raw ?? {}) as Readonly<Record<string, unknown>>;
  if (typeof given !== 'object' || Array.isArray(given)) throw new ConfigError('expected a section');
  for (const name of Object.keys(given))
    if (name !== 'mxid_source_attribute' && name !== 'mxid_mapping')
      throw new ConfigError('is unknown; there are mxid_source_attribute, mxid_mapping', [name]);
  const { mxid_source_attribute: source = 'uid', mxid_mapping: mapping = 'hexencode' } = given;
  if (typeof source !== 'string' || source === '') throw new ConfigError('expected a name', ['mxid_source_attribute']);
  if (mapping !== 'hexencode' && mapping !== 'dotreplace')
    throw new ConfigError('expected hexencode or dotreplace', ['mxid_mapping']);
  const map = mapping === 'hexencode' ? mapUsernameToMxidLocalpart : dotReplace;
  return {
    getSamlAttributes: () => ({ required: ['uid', source], optional: ['displayName', 'email'] }),
    getRemoteUserId(response) {
      const [uid] = response.attributes['uid'] ?? [];
      if (uid === undefined || uid === '')
        throw MatrixError.badRequest('The sign-in provider did not say who you are.');
      return uid;
    },
    samlResponseToUserAttributes(response, failures) {
      const [name] = response.attributes[source] ?? [];
      if (name === undefined || name === '')
        throw MatrixError.badRequest(`The sign-in provider did not send the attribute ${source}.`);
      return {
        mxidLocalpart: map(name) + (failures > 0 ? String(failures) : ''),
        displayName: response.attributes['displayName']?.[0],
        emails: response.attributes['email'] ?? [],
      };
    },
  };
}
