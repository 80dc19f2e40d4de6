import 'reflect-metadata';
import type { AllCallbacks, AuthChecker as Checker, CallbackName } from '@rookery/module-api';

/** Callbacks that are functions: all but the list of login types. */
export type MethodCallback = Exclude<CallbackName, 'authCheckers'>;

/** What a method of a provider was declared to answer. */
export type Declared =
  | { readonly kind: 'callback'; readonly name: MethodCallback; readonly types?: readonly string[] }
  | { readonly kind: 'authChecker'; readonly loginType: string; readonly fields: readonly string[] }
  | { readonly kind: 'every'; readonly name: string; readonly periodMs: number }
  | { readonly kind: 'job'; readonly name: string };

const key = 'rookery:declared';

/** What a method was declared to answer, in no order. */
export const declarationsOf = (method: object): readonly Declared[] =>
  (Reflect.getMetadata(key, method) as readonly Declared[] | undefined) ?? [];

/** Decorates a method of a provider or controller whose type is that of the callback: parameters may be left out at the end. */
export type CallbackDecorator<Signature> = <Method extends Signature>(
  target: object,
  property: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void;

const declare =
  <Signature>(declared: Declared): CallbackDecorator<Signature> =>
  (_target, _property, descriptor) => {
    const method = descriptor.value as object;
    Reflect.defineMetadata(key, [...declarationsOf(method), declared], method);
  };

const decorator =
  <Name extends MethodCallback>(name: Name) =>
  (): CallbackDecorator<AllCallbacks[Name]> =>
    declare({ kind: 'callback', name });

/**
 * Is told of new events, of these types or of all: `onNewEvent`. As many methods as wanted.
 *
 * ```ts
 * @OnMatrixEvent('m.room.message')
 * onMessage(event: ModuleEvent) {}
 * ```
 */
export const OnMatrixEvent = (...types: readonly string[]): CallbackDecorator<AllCallbacks['onNewEvent']> =>
  declare({ kind: 'callback', name: 'onNewEvent', ...(types.length > 0 && { types }) });

/** Checks logins of one type: `authCheckers`. */
export const AuthChecker = (loginType: string, fields: readonly string[]): CallbackDecorator<Checker['check']> =>
  declare({ kind: 'authChecker', loginType, fields });

/** Runs every `periodMs` in one process of the server, and after a restart again: `scheduler.every`. */
export const Every = (name: string, periodMs: number): CallbackDecorator<() => Promise<void> | void> =>
  declare({ kind: 'every', name, periodMs });

/** Does what `scheduler.runAt` stored under the name: `scheduler.handle`. */
export const Job = (name: string): CallbackDecorator<(payload: unknown) => Promise<void> | void> =>
  declare({ kind: 'job', name });

/** A method is the callback `checkEventForSpam`. */
export const CheckEventForSpam = decorator('checkEventForSpam');
/** A method is the callback `shouldDropFederatedEvent`. */
export const ShouldDropFederatedEvent = decorator('shouldDropFederatedEvent');
/** A method is the callback `userMayJoinRoom`. */
export const UserMayJoinRoom = decorator('userMayJoinRoom');
/** A method is the callback `userMayInvite`. */
export const UserMayInvite = decorator('userMayInvite');
/** A method is the callback `federatedUserMayInvite`. */
export const FederatedUserMayInvite = decorator('federatedUserMayInvite');
/** A method is the callback `userMaySend3pidInvite`. */
export const UserMaySend3pidInvite = decorator('userMaySend3pidInvite');
/** A method is the callback `userMayCreateRoom`. */
export const UserMayCreateRoom = decorator('userMayCreateRoom');
/** A method is the callback `userMayCreateRoomAlias`. */
export const UserMayCreateRoomAlias = decorator('userMayCreateRoomAlias');
/** A method is the callback `userMayPublishRoom`. */
export const UserMayPublishRoom = decorator('userMayPublishRoom');
/** A method is the callback `userMaySendStateEvent`. */
export const UserMaySendStateEvent = decorator('userMaySendStateEvent');
/** A method is the callback `checkUsernameForSpam`. */
export const CheckUsernameForSpam = decorator('checkUsernameForSpam');
/** A method is the callback `checkRegistrationForSpam`. */
export const CheckRegistrationForSpam = decorator('checkRegistrationForSpam');
/** A method is the callback `checkMediaFileForSpam`. */
export const CheckMediaFileForSpam = decorator('checkMediaFileForSpam');
/** A method is the callback `checkLoginForSpam`. */
export const CheckLoginForSpam = decorator('checkLoginForSpam');
/** A method is the callback `checkEventAllowed`. */
export const CheckEventAllowed = decorator('checkEventAllowed');
/** A method is the callback `onCreateRoom`. */
export const OnCreateRoom = decorator('onCreateRoom');
/** A method is the callback `checkThreepidCanBeInvited`. */
export const CheckThreepidCanBeInvited = decorator('checkThreepidCanBeInvited');
/** A method is the callback `checkVisibilityCanBeModified`. */
export const CheckVisibilityCanBeModified = decorator('checkVisibilityCanBeModified');
/** A method is the callback `onNewEvent`. */
export const OnNewEvent = decorator('onNewEvent');
/** A method is the callback `checkCanShutdownRoom`. */
export const CheckCanShutdownRoom = decorator('checkCanShutdownRoom');
/** A method is the callback `checkCanRemoveHistory`. */
export const CheckCanRemoveHistory = decorator('checkCanRemoveHistory');
/** A method is the callback `checkCanDeactivateUser`. */
export const CheckCanDeactivateUser = decorator('checkCanDeactivateUser');
/** A method is the callback `onProfileUpdate`. */
export const OnProfileUpdate = decorator('onProfileUpdate');
/** A method is the callback `onUserDeactivationStatusChanged`. */
export const OnUserDeactivationStatusChanged = decorator('onUserDeactivationStatusChanged');
/** A method is the callback `onThreepidBind`. */
export const OnThreepidBind = decorator('onThreepidBind');
/** A method is the callback `onAddUserThirdPartyIdentifier`. */
export const OnAddUserThirdPartyIdentifier = decorator('onAddUserThirdPartyIdentifier');
/** A method is the callback `onRemoveUserThirdPartyIdentifier`. */
export const OnRemoveUserThirdPartyIdentifier = decorator('onRemoveUserThirdPartyIdentifier');
/** A method is the callback `onRoomUpgraded`. */
export const OnRoomUpgraded = decorator('onRoomUpgraded');
/** A method is the callback `check3pidAuth`. */
export const Check3pidAuth = decorator('check3pidAuth');
/** A method is the callback `onLoggedOut`. */
export const OnLoggedOut = decorator('onLoggedOut');
/** A method is the callback `getUsernameForRegistration`. */
export const GetUsernameForRegistration = decorator('getUsernameForRegistration');
/** A method is the callback `getDisplaynameForRegistration`. */
export const GetDisplaynameForRegistration = decorator('getDisplaynameForRegistration');
/** A method is the callback `is3pidAllowed`. */
export const Is3pidAllowed = decorator('is3pidAllowed');
/** A method is the callback `isUserExpired`. */
export const IsUserExpired = decorator('isUserExpired');
/** A method is the callback `onUserRegistration`. */
export const OnUserRegistration = decorator('onUserRegistration');
/** A method is the callback `onUserLogin`. */
export const OnUserLogin = decorator('onUserLogin');
/** A method is the callback `onLegacySendMail`. */
export const OnLegacySendMail = decorator('onLegacySendMail');
/** A method is the callback `onLegacyRenew`. */
export const OnLegacyRenew = decorator('onLegacyRenew');
/** A method is the callback `onLegacyAdminRequest`. */
export const OnLegacyAdminRequest = decorator('onLegacyAdminRequest');
/** A method is the callback `getUsersForStates`. */
export const GetUsersForStates = decorator('getUsersForStates');
/** A method is the callback `getInterestedUsers`. */
export const GetInterestedUsers = decorator('getInterestedUsers');
/** A method is the callback `onAccountDataUpdated`. */
export const OnAccountDataUpdated = decorator('onAccountDataUpdated');
/** A method is the callback `addFieldToUnsigned`. */
export const AddFieldToUnsigned = decorator('addFieldToUnsigned');
/** A method is the callback `getMediaConfigForUser`. */
export const GetMediaConfigForUser = decorator('getMediaConfigForUser');
/** A method is the callback `isUserAllowedToUploadMediaOfSize`. */
export const IsUserAllowedToUploadMediaOfSize = decorator('isUserAllowedToUploadMediaOfSize');
/** A method is the callback `getMediaUploadLimitsForUser`. */
export const GetMediaUploadLimitsForUser = decorator('getMediaUploadLimitsForUser');
/** A method is the callback `onMediaUploadLimitExceeded`. */
export const OnMediaUploadLimitExceeded = decorator('onMediaUploadLimitExceeded');
/** A method is the callback `onMediaStored`. */
export const OnMediaStored = decorator('onMediaStored');
/** A method is the callback `getRatelimitOverrideForUser`. */
export const GetRatelimitOverrideForUser = decorator('getRatelimitOverrideForUser');
/** A method is the callback `onEventDeliveredOverFederation`. */
export const OnEventDeliveredOverFederation = decorator('onEventDeliveredOverFederation');
/** A method is the callback `onUpdate`. */
export const OnUpdate = decorator('onUpdate');
/** A method is the callback `defaultBatchSize`. */
export const DefaultBatchSize = decorator('defaultBatchSize');
/** A method is the callback `minBatchSize`. */
export const MinBatchSize = decorator('minBatchSize');
