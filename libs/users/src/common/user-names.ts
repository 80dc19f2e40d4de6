import { domainOf, isHistoricalLocalpart, isValidNewLocalpart, MatrixError, maxIdBytes } from '@rookery/matrix-types';

/** What a new user's name is checked against. */
export interface UsernameRules {
  readonly serverName: string;
  readonly allowUnderscorePrefix: boolean;
}

/**
 * The localpart of a new account from what a client asked for. Only ASCII gets in, before letters are lowered: some
 * letters outside ASCII lower to ASCII ones (the Kelvin sign to `k`), and others merely look like them.
 * @spec appendices#user-identifiers
 * @throws MatrixError 400 `M_INVALID_USERNAME`
 */
export function checkNewLocalpart(username: string, rules: UsernameRules): string {
  const localpart = lowerAscii(username);
  if (localpart === '') throw invalid('A user name cannot be empty');
  if (!isValidNewLocalpart(localpart))
    throw invalid(
      "A user name can only contain the letters a-z, digits, and the characters '.', '_', '=', '-', '/' and '+'",
    );
  if (localpart.startsWith('_') && !rules.allowUnderscorePrefix)
    throw invalid('A user name may not begin with an underscore');
  if (/^\d+$/.test(localpart)) throw invalid('User names of digits only are reserved for guests');
  checkCommon(localpart, rules.serverName);
  return localpart;
}

/**
 * Checks the localpart of an account that an application service makes. It is taken as it is: services name their users after those of
 * another network, capitals included and telephone numbers among them, and go on to act as the user whom they named.
 * @spec appendices#historical-user-ids
 * @throws MatrixError 400 `M_INVALID_USERNAME`
 */
export function checkServiceLocalpart(localpart: string, serverName: string): void {
  if (!isHistoricalLocalpart(localpart) || localpart.startsWith('@'))
    throw invalid('A user name can only contain printable ASCII characters, no spaces and colons, and no @ first');
  checkCommon(localpart, serverName);
}

function checkCommon(localpart: string, serverName: string): void {
  if (Buffer.byteLength(`@${localpart}:${serverName}`) > maxIdBytes)
    throw invalid(`A user id may not be longer than ${maxIdBytes} bytes`);
}

function invalid(message: string): MatrixError {
  return MatrixError.invalidUsername(message);
}

/** Lowers ASCII letters and nothing else: what only looks like one, or lowers to one, stays what it is. */
export function lowerAscii(text: string): string {
  return text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
}

/** Completes a localpart or takes a full user id as it is. */
export function qualifyUserId(userOrLocalpart: string, serverName: string): string {
  return userOrLocalpart.startsWith('@') ? userOrLocalpart : `@${userOrLocalpart}:${serverName}`;
}

/** Whether the user id belongs to this server. */
export function isLocalUser(userId: string, serverName: string): boolean {
  return userId.startsWith('@') && domainOf(userId) === serverName;
}
