/** Single sign-on: OIDC, SAML, CAS. */
export {};
