/** Makes any Passport strategy a sign-in provider of a Rookery module. */
export { type FormField, type LoginForm } from './login-form.js';
export { type PassportProviderOptions, passportProvider } from './passport-provider.js';
export { identifyProfile, keepProfile, profileOf } from './profiles.js';
export type { PassportStrategy, StrategyContext } from './strategy.js';
