import { MatrixError } from '@rookery/matrix-types';
import { isMailAddress } from '@rookery/templates';
import { callingCodes } from './calling-codes.js';

/** Longest text that is looked at as an email address, characters. */
const longestEmail = 500;

/**
 * An address in the form in which it is stored and compared.
 * @throws MatrixError 400 `M_INVALID_PARAM`, `M_THREEPID_MEDIUM_NOT_SUPPORTED`
 */
export function canonicalAddress(medium: string, address: string): string {
  if (medium === 'email') return canonicalEmail(address);
  if (medium === 'msisdn') return canonicalMsisdn(address);
  throw MatrixError.threepidMediumNotSupported('Only email addresses and phone numbers are known here');
}

/**
 * An email address with letters folded, so that one mailbox is one address. Nothing gets through to which no mail could be written, nor
 * what could end a mail header or begin another address.
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function canonicalEmail(address: string): string {
  // As it is stored: folding makes some texts longer, and other signs of some.
  const canonical = address.length > longestEmail ? '' : fold(address);
  if (!isMailAddress(canonical)) throw MatrixError.invalidParam('Not a valid email address');
  return canonical;
}

/** Case folding: what lower and upper case agree on. */
const fold = (text: string): string => text.normalize('NFC').toUpperCase().toLowerCase().normalize('NFC');

/** A phone number in international form as digits, without a plus. */
export function canonicalMsisdn(number: string): string {
  const digits = number.replace(/^\+/, '').replace(/[\s().-]/g, '');
  if (!/^[1-9]\d{5,14}$/.test(digits)) throw MatrixError.invalidParam('Not a valid phone number');
  return digits;
}

/**
 * A phone number as somebody in a country dials it.
 * @param country two letters
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function canonicalPhone(country: string, number: string): string {
  const compact = number.replace(/[\s().-]/g, '');
  if (compact.startsWith('+')) return canonicalMsisdn(compact);
  if (compact.startsWith('00')) return canonicalMsisdn(compact.slice(2));
  const code = callingCodes.get(country.toUpperCase());
  if (code === undefined) throw MatrixError.invalidParam('Unknown country');
  // In most countries a leading zero is the trunk prefix; in a few it is part of the number, in Italy among them.
  const national = keepsZero.has(country.toUpperCase()) ? compact : compact.replace(/^0/, '');
  return canonicalMsisdn(code + national);
}

const keepsZero = new Set(['IT', 'SM', 'VA', 'CI', 'CG', 'GA']);
